"""Code that formats share, also for formats of users and other folders."""

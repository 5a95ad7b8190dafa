"""An application on a YARN of this machine is killed with its servers, and each line and word is counted.

``python -m tests.demos.yarn``. A stream writes the lines of a text to files, and another one counts the words into a
store, both on a real HDFS. At the end the visible files and the store are compared with the text.
"""

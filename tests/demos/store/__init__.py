"""Word count on a keyed store: a stream and a plain Python program count words, are killed, and count each word once.

``python -m tests.demos.store``. A Spark application streams text into a store that adds up counts, and is SIGKILLed in
chosen moments. Another process looks up words all the time. Then a program without Spark counts the same words in
windows and is killed as well. At the end both stores are compared with an independent count.
"""

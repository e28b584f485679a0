"""What moves between subtasks: elements, their envelope on the exchange, key groups, the Transport.

Imports nothing of Cutwater but ``errors``; every other package may import it.
"""

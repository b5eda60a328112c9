"""The contestants, a file for each library: how its own documentation says to read a folder, in two workers or threads.

``images(folder)`` yields pairs of a batch (float32, CHW, 64 pictures) and its labels, ``small(folder)`` batches of 256
byte strings, both for one shuffled epoch. Batches stay what they are while later ones are made. What a loader needs to
be ended is done when the generator is closed. A module is imported only in the process of its contestant.
"""

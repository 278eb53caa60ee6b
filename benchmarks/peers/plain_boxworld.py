"""BoxWorld in plain Python, with lists and a single episode, which is slow on purpose.

It is written from the description of the rules, independently of the package. Tests compare the two step by
step, and so does `plain_python.py` before timing them.
"""

import colorsys
import random

EMPTY, GEM = -1, 0
FLOOR, NO_KEY, PLAYER = (199, 199, 199), (10, 10, 10), (127, 127, 127)
COLOURS = [tuple(round(255 * c) for c in colorsys.hsv_to_rgb(18 * i / 360, 0.7, 0.8)) for i in range(20)]
MOVES = {0: (-1, 0), 1: (0, -1), 2: (1, 0), 3: (0, 1)}


class PlainBoxWorld:
    """One episode: `step(action)` returns (reward, done), `picture()` rows of (red, green, blue)."""

    def __init__(self, grid, palette, deadly, two_locks, horizon=0):
        """Starts an episode on a board.

        Args:
            grid: rows of colors, as indices of `palette`; -1 is empty.
            palette: (red, green, blue) of each color.
            deadly: (x, y) of the locks that end the episode.
            two_locks: whether the gem needs two keys at once.
            horizon: maximum number of steps; 0 for no limit.
        """
        self.grid = [[int(tile) for tile in row] for row in grid]
        self.palette = [tuple(int(c) for c in colour) for colour in palette]
        self.deadly = [tuple(place) for place in deadly]
        self.two_locks, self.horizon = two_locks, horizon
        self.rows, self.cols = len(self.grid), len(self.grid[0])
        self.player, self.inventory = (0, 0), []
        self.time, self.done, self.cut = 0, False, False

    def at(self, x, y):
        """Returns the tile at a position; positions outside the board are empty."""
        return self.grid[y][x] if 0 <= x < self.cols and 0 <= y < self.rows else EMPTY

    def step(self, action):
        """Takes an action and returns (reward, done)."""
        if self.done or self.cut:
            return 0.0, self.done
        self.time += 1
        took = action in MOVES and self.go(*MOVES[action])
        if GEM in self.inventory:
            reward, self.done = 10.0, True
        elif self.player in self.deadly:
            reward, self.done = -1.0, True
        else:
            reward = 1.0 if took else 0.0
        if self.horizon and self.time >= self.horizon and not self.done:
            self.cut = True
        return reward, self.done

    def go(self, dx, dy):
        """Tries to move by (dx, dy); returns whether a key was taken or a box opened."""
        x = min(max(self.player[0] + dx, 0), self.cols - 1)
        y = min(max(self.player[1] + dy, 0), self.rows - 1)
        tile, left, right = self.at(x, y), self.at(x - 1, y), self.at(x + 1, y)
        if tile == EMPTY:
            self.player = (x, y)
            return False
        if left == GEM and self.two_locks:
            return self.open_gem(x, y)
        if left != EMPTY:  # a lock
            if tile not in self.inventory:
                return False
            self.inventory.remove(tile)
            self.inventory.append(left)
            self.grid[y][x] = self.grid[y][x - 1] = EMPTY
        elif right == EMPTY:  # a loose key
            self.inventory.append(tile)
            self.grid[y][x] = EMPTY
        else:  # the content of a box
            return False
        self.player = (x, y)
        return True

    def open_gem(self, x, y):
        """Opens both locks at once if the inventory has both keys; returns whether it did."""
        top = y if self.at(x - 1, y + 1) == GEM else y - 1
        left_over = list(self.inventory)
        for lock in (self.at(x, top), self.at(x, top + 1)):
            if lock not in left_over:
                return False
            left_over.remove(lock)
        self.inventory = [*left_over, GEM, GEM]
        for row in (top, top + 1):
            self.grid[row][x] = self.grid[row][x - 1] = EMPTY
        self.player = (x, y)
        return True

    def picture(self):
        """Returns the board with the inventory as an additional column."""
        picture = []
        for y in range(self.rows):
            row = [FLOOR if tile == EMPTY else self.palette[tile] for tile in self.grid[y]]
            row.append(self.palette[self.inventory[y]] if y < len(self.inventory) else NO_KEY)
            picture.append(row)
        picture[self.player[1]][self.player[0]] = PLAYER
        return picture


def placed(rows, boxes):
    """Returns a board of 9 columns with boxes ((x, y), (content, lock)); the lock of a loose key is None."""
    grid = [[EMPTY] * 9 for _ in range(rows)]
    for (x, y), (content, lock) in boxes:
        grid[y][x] = content
        if lock is not None:
            grid[y][x + 1] = lock
    return grid


def bridge_board(draw: random.Random):
    """Returns a random bridge puzzle on 7 x 9: (grid, palette, deadly locks, (L, s, t))."""
    length = draw.randint(1, 3)
    slots = [(x, y) for x in (1, 4, 7) for y in (1, 3, 5)]
    draw.shuffle(slots)
    while slots[0][0] > 6 or slots[0][1] > 4:
        draw.shuffle(slots)
    gem = slots.pop(0)
    slots.remove((gem[0], gem[1] + 2))
    boxes = []
    for first in (1, length + 1):
        boxes += [(key, key + 1) for key in range(first, first + length - 1)] + [(first + length - 1, None)]
    kind, deadly = (length, 0, 0), []
    if draw.random() < 0.5:
        kind = (length, draw.randint(1, length), draw.randint(length + 1, 2 * length))
        deadly.append((slots[len(boxes)][0] + 1, slots[len(boxes)][1]))
        boxes.append((kind[2], kind[1]))
    gems = [(gem, (GEM, 1)), ((gem[0], gem[1] + 1), (GEM, length + 1))]
    grid = placed(7, [*gems, *zip(slots, boxes, strict=False)])
    return grid, [(255, 255, 255), *draw.sample(COLOURS, 20)], deadly, kind


def standard_board(draw: random.Random):
    """Returns a random standard puzzle on 9 x 9: (grid, palette, deadly locks, (L, distractors))."""
    length, distractors = draw.randint(1, 5), draw.randint(0, 4)
    slots = [(x, y) for x in (1, 4, 7) for y in (1, 3, 5, 7)]
    draw.shuffle(slots)
    boxes = [(GEM, 1)] + [(key, key + 1) for key in range(1, length)] + [(length, None)]
    deadly = []
    for i in range(distractors):
        deadly.append((slots[len(boxes)][0] + 1, slots[len(boxes)][1]))
        boxes.append((length + 1 + i, draw.randint(1, length)))
    grid = placed(9, zip(slots, boxes, strict=False))
    return grid, [(255, 255, 255), *draw.sample(COLOURS, 20)], deadly, (length, distractors)

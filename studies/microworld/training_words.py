"""The lexicon of training and development sentences."""

from lexicon import Lexicon, action, read_concepts

TRAIN = Lexicon(
    numbers={2: "two", 4: "four"},
    some="some",
    outdoor_kinds=("(farm animal)", "vehicle"),
    nouns=read_concepts("""
person
  adult, grown-up
    man, guy
    woman, lady
  child, kid
    boy
    girl
animal, creature
  (pet)
    dog
      puppy
    cat
      kitten
    rabbit, bunny
    mouse
    monkey
  (farm animal)
    horse
      pony
    cow
    goat
    sheep
(food)
  fruit
    apple
    banana
    peach
    pear
  vegetable
    carrot
    potato
    tomato
    onion
instrument, musical instrument
  guitar
  piano
  flute
  drum
vehicle
  (motor vehicle)
    car, automobile
      taxi, cab
    truck
    bus
  bicycle, bike
toy
  ball
  doll
  kite
piece of furniture
  chair
  table
  bench
(reading)
  book
    novel
  magazine
  letter
piece of clothing
  hat
  shirt
  jacket
"""),
    attributes=read_concepts("""
(colour)
  red: vehicle, toy, piece of furniture, piece of clothing
  blue: vehicle, toy, piece of furniture, piece of clothing
  black: vehicle, toy, piece of furniture, piece of clothing, dog, cat, rabbit, horse, goat
  white: vehicle, toy, piece of furniture, piece of clothing, dog, cat, rabbit, horse, goat
(size)
  big, large: animal, fruit, vegetable, vehicle, toy
  small, little: animal, fruit, vegetable, vehicle, toy
(age)
  young: man, woman
  old, elderly: man, woman
(height)
  tall: person
  short: person
(wear)
  brand-new, new: vehicle, toy, instrument, piece of clothing, piece of furniture
  shabby, worn-out: vehicle, toy, instrument, piece of clothing, piece of furniture
"""),
    places=read_concepts("""
(open)
  outdoors
    in the park
    on the beach
    in the forest, in the woods
    on the street, on the road
    in the field, in the meadow
(roofed)
  indoors
    in the kitchen
    in the bedroom
    in the living room, in the lounge
    in the office
(water)
  in the lake
  in the sea, in the ocean
  in the pool
"""),
    actions=(
        action("food", "eat", "person, animal", "fruit, vegetable", object_optional=True),
        action("food", "devour", "person, animal", "fruit, vegetable", active="wolf down", kind_of="eat"),
        action("food", "cook, prepare", "person", "vegetable", object_optional=True, places="(roofed)"),
        action("food", "cut", "person", "fruit, vegetable"),
        action("food", "slice", "person", "fruit, vegetable", kind_of="cut"),
        action("food", "peel", "person", "fruit, potato, carrot, onion"),
        action("music", "play", "person", "instrument", object_optional=True),
        action("music", "sing", "person", contraries="sleep, eat"),
        action("music", "dance", "person", contraries="sleep, sit"),
        action("music", "dance with", "person", "person", mutual=True, contraries="ignore"),
        action("motion", "run", "person, animal", contraries="sleep, sit, swim"),
        action("motion", "jog", "person", kind_of="run", contraries="sleep, sit, swim"),
        action("motion", "walk", "person, animal", contraries="run, jog, sleep, sit, swim"),
        action("motion", "stroll", "person", kind_of="walk", contraries="run, jog, sleep, sit, swim"),
        action("motion", "jump, leap", "person, animal", contraries="sleep, sit"),
        action("motion", "swim", "person, dog, horse, monkey", places="(water)"),
        action("motion", "chase", "person, animal", "person, animal", active="run after", contraries="sleep, sit"),
        action("motion", "lead, guide", "person", "person, animal", converse="follow", contraries="sleep, sit"),
        action("motion", "ride", "person", "bicycle, horse", places="(open)", contraries="sleep, lead, repair"),
        action("motion", "drive", "adult", "(motor vehicle)", places="(open)", contraries="sleep, repair, wash"),
        action("motion", "throw, toss", "person", "toy, fruit", contraries="catch"),
        action("motion", "catch", "person, dog, monkey", "ball"),
        action("motion", "kick", "person, horse", "ball, person", contraries="catch, hug"),
        action("rest", "sleep", "person, animal", contraries="eat, cook, cut, play, read, repair, paint, feed, wash"),
        action("rest", "sit", "person, dog, cat, rabbit, monkey"),
        action("care", "feed", "person", "animal"),
        action("care", "wash, clean", "person", "animal, vehicle, piece of clothing"),
        action("care", "pet, stroke", "person", "animal", contraries="chase"),
        action("care", "hug, embrace", "person", "child, (pet)", contraries="push, chase"),
        action("care", "help, assist", "person", "person", contraries="ignore"),
        action("care", "carry", "person", "child, (pet), toy, piece of furniture"),
        action("care", "lick", "animal", "person, animal", contraries="bite, ignore"),
        action("conflict", "bite", "animal", "person, animal", contraries="sleep"),
        action("conflict", "push, shove", "person", "person, vehicle, piece of furniture", contraries="pull"),
        action("conflict", "pull, tug", "person", "person, vehicle, piece of furniture"),
        action("conflict", "frighten, scare", "person, animal", "person, animal", contraries="sleep"),
        action("conflict", "ignore", "person, animal", "person, animal", contraries="chase, frighten, push, teach"),
        action("work", "repair, fix", "adult", "vehicle, toy, instrument, piece of furniture", contraries="break"),
        action("work", "break, smash", "person", "toy, instrument, piece of furniture"),
        action("work", "paint", "person", "piece of furniture, bicycle, toy", object_optional=True),
        action("work", "photograph", "person", "person, animal, vehicle", active="snap a picture of"),
        action("work", "watch", "person, animal", "person, animal", active="look at", contraries="ignore, sleep"),
        action("talk", "talk with, speak with", "person", "person", mutual=True, contraries="ignore, sleep"),
        action("talk", "teach", "adult", "child", converse="learn from", contraries="sleep"),
        action("talk", "shout, yell", "person", contraries="sleep"),
        action("talk", "laugh", "person", contraries="cry, sleep"),
        action("talk", "cry, weep", "person"),
        action("talk", "read", "person", "(reading)", object_optional=True, contraries="tear up"),
        action("talk", "tear up", "person", "letter, magazine, book"),
        action("exchange", "give, hand", "person", "toy, fruit, (reading), hat", "person", converse="receive, get"),
        action("exchange", "show", "person", "toy, (reading), hat, kitten", "person"),
    ),
)

"""The words of the small world: one lexicon to train on, and another, without a content word in common, to test on."""

from nearfar.data.microworld.lexicon import Lexicon, action, read_concepts

TRAIN = Lexicon(
    numbers={2: "two", 4: "four"},
    some="some",
    outdoor_kinds=("(farm animal)", "(motor vehicle)"),
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
"""What training and development sentences speak of."""

TEST = Lexicon(
    numbers={3: "three", 5: "five"},
    some="several",
    outdoor_kinds=("(large)", "aircraft", "boat", "machine"),
    nouns=read_concepts("""
individual
  musician
    violinist
    cellist
  athlete
    boxer
    skater
    goalkeeper, goalie
  doctor, physician
    surgeon
    dentist
  scientist
    chemist
    biologist
  police officer, cop
  lawyer, attorney
  student, pupil
  nurse
  sailor
  farmer
mammal
  squirrel
  (large)
    bear
    deer
    donkey
    pig, hog
    tiger
bird
  parrot
  crow
  goose
  owl
reptile
  snake
  lizard
  turtle
dessert
  cake
    cupcake
  pie
  cookie
  doughnut
dish
  omelet
  pancake
  sandwich
    burger, hamburger
(sound)
  violin, fiddle
  trumpet
  harp
  cello
tool
  hammer
  shovel, spade
  wrench, spanner
  axe
bag
  suitcase
  backpack, rucksack
  purse, handbag
(jewelry)
  ring
  necklace
  bracelet
aircraft
  airplane, plane
  helicopter, chopper
boat
  canoe
  sailboat
  ferry
machine
  motorcycle, motorbike
  tractor
  lawnmower
(opening)
  door
  gate
  window
container
  box
  barrel
  basket
(writing)
  poem
  essay
  report
"""),
    attributes=read_concepts("""
(colour)
  green: bag, machine, boat, (opening), container, parrot, snake, lizard
  yellow: bag, machine, boat, (opening), container, parrot, snake
  brown: bag, boat, (opening), container, bear, owl, snake
  gray: bag, machine, boat, (opening), container, donkey, owl, lizard
(size)
  huge, enormous: mammal, bird, reptile, aircraft, boat, container, dessert, dish
  tiny, minuscule: bird, reptile, squirrel, boat, container, dessert
(mood)
  happy, cheerful: individual
  sad, gloomy: individual
(build)
  thin, skinny: individual
  stout, heavyset: individual
(price)
  expensive, costly: bag, (jewelry), (sound), motorcycle
  cheap: bag, (jewelry), (sound), motorcycle
(dirt)
  dirty, filthy: tool, bag, container, machine, (opening), pig, bear
  spotless: tool, bag, container, machine, (opening)
"""),
    places=read_concepts("""
(open)
  outside
    in the garden, in the yard
    on the hill
    at the harbor, at the port
    on the sidewalk, on the pavement
    in the desert
(roofed)
  inside
    in the hallway, in the corridor
    in the library
    in the museum
    in the garage
    in the basement, in the cellar
(water)
  in the pond
  in the bay
"""),
    actions=(
        action("food", "consume", "individual, mammal, bird", "dessert, dish", active="dine on"),
        action("food", "gobble up", "individual, mammal, bird", "dessert, dish", kind_of="consume"),
        action("food", "bake", "individual", "dessert", object_optional=True, places="(roofed)"),
        action("food", "decorate, adorn", "individual", "cake, (opening)", contraries="doze"),
        action("music", "tune", "individual", "(sound)", contraries="doze"),
        action("music", "hum", "individual", contraries="scream, snore"),
        action("motion", "crawl", "individual, reptile", contraries="hop, sprint, doze, kneel"),
        action("motion", "hop", "individual, bird, squirrel", contraries="doze, kneel"),
        action("motion", "sprint", "individual, mammal", contraries="doze, kneel, rest"),
        action("motion", "wander, roam", "individual, mammal, reptile", contraries="doze, kneel, sprint"),
        action("motion", "float, drift", "individual, bird, turtle", places="(water)"),
        action("motion", "pursue", "individual, mammal", "individual, mammal, bird", active="go after"),
        action("motion", "fly, pilot", "individual", "aircraft", places="(open)", contraries="examine, doze"),
        action("motion", "row, paddle", "individual", "canoe", places="(open)", contraries="doze"),
        action("motion", "raise, lift", "individual", "container, bag, tool", contraries="lower, doze"),
        action("motion", "lower", "individual", "container, bag, tool", contraries="doze"),
        action("rest", "doze, nap", "individual, mammal, bird, reptile"),
        action("rest", "snore", "individual", kind_of="doze"),
        action("rest", "rest, relax", "individual, mammal", contraries="exercise, pursue, wrestle with"),
        action("rest", "kneel", "individual"),
        action("work", "exercise", "individual", active="work out", contraries="doze, kneel"),
        action("care", "rescue, save", "individual", "individual, mammal, bird", contraries="attack, abandon"),
        action("care", "comfort, console", "individual", "individual", contraries="mock, doze"),
        action("care", "tickle", "individual", "individual", contraries="doze"),
        action("conflict", "attack, assault", "individual, mammal", "individual, mammal", contraries="doze"),
        action("conflict", "abandon", "individual", "individual, boat", contraries="comfort"),
        action("conflict", "mock, ridicule", "individual", "individual", active="make fun of", contraries="praise"),
        action("conflict", "defeat", "individual", "individual", converse="lose to", contraries="comfort"),
        action("conflict", "wrestle with", "individual", "individual", mutual=True, contraries="comfort, doze"),
        action("work", "assemble, put together", "individual", "machine, boat", contraries="dismantle, doze"),
        action("work", "dismantle, take apart", "individual", "machine, boat, (opening)", contraries="doze"),
        action("work", "load", "individual", "boat, aircraft, container, bag", contraries="unload, doze"),
        action("work", "unload, empty", "individual", "boat, aircraft, container, bag", contraries="doze"),
        action("work", "polish, shine", "individual", "(sound), (jewelry), tool", contraries="doze"),
        action("work", "examine, inspect", "individual", "machine, boat, aircraft, (jewelry), tool", contraries="doze"),
        action("work", "open", "individual", "(opening), container, bag", contraries="close, doze"),
        action("work", "close, shut", "individual", "(opening), container, bag"),
        action("work", "write, compose", "individual", "(writing)", contraries="doze, burn"),
        action("work", "burn", "individual", "(writing), container"),
        action("work", "host", "individual", "individual", converse="stay with"),
        action("work", "employ", "individual", "individual", converse="work for"),
        action("talk", "chat with", "individual", "individual", mutual=True, contraries="attack, doze"),
        action("talk", "interview, question", "individual", "individual", contraries="doze, attack"),
        action("talk", "praise, compliment", "individual", "individual", contraries="doze"),
        action("talk", "whisper", "individual", contraries="scream, doze"),
        action("talk", "scream, shriek", "individual", contraries="doze"),
        action("talk", "smile, grin", "individual", contraries="frown"),
        action("talk", "frown, scowl", "individual"),
        action(
            "exchange", "sell", "individual", "(jewelry), tool, bag, machine", "individual", converse="buy, purchase"
        ),
        action(
            "exchange", "lend, loan", "individual", "(jewelry), tool, bag, machine", "individual", converse="borrow"
        ),
        action("exchange", "steal", "individual", "(jewelry), tool, bag, (sound)", active="make off with"),
    ),
)
"""What test sentences speak of."""

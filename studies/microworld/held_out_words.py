"""The lexicon of test sentences; it shares no content word with the training sentences."""

from lexicon import Lexicon, action, read_concepts

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
        action("motion", "pursue", "individual, mammal", "individual, mammal, bird", active="race after"),
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
        action("work", "assemble, build", "individual", "machine, boat", contraries="dismantle, doze"),
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

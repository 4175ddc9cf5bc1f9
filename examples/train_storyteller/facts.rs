//! The tables behind the small skills. Plain data.

use crate::words::Table;

pub static DAYS: Table = Table::new("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday");
pub static MONTHS: Table =
    Table::new("January, February, March, April, May, June, July, August, September, October, November, December");
pub static ORDINALS: Table =
    Table::new("first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth, eleventh, twelfth");

/// What people say first, and what the storyteller answers.
pub const SMALL_TALK: &[(&[&str], &[&str])] = &[
    (
        &[
            "Hello",
            "Hello!",
            "Hi",
            "Hi!",
            "Hey",
            "hello",
            "hi",
            "Hi there!",
            "Good morning!",
            "Good evening!",
            "Hello there.",
        ],
        &[
            "Hello! [I am the storyteller.|] Would you like to hear a story?",
            "Hi! Tell me a name and an animal, and I will tell you a story.",
            "Hello! What shall I tell you about?",
        ],
    ),
    (
        &[
            "Who are you?",
            "What are you?",
            "What is your name?",
            "Introduce yourself.",
            "Are you a robot?",
            "Are you a person?",
            "who are you",
            "Which model are you?",
        ],
        &[
            "I am the storyteller, a tiny model built into Forebay. I tell short stories.",
            "I am the storyteller, a tiny language model that lives inside Forebay.",
        ],
    ),
    (
        &["What can you do?", "Help", "What can I ask you?", "How can you help me?", "What do you know?", "help"],
        &[
            "I can tell short stories, answer questions about them, count, and continue lists.",
            "I tell little stories. Try: Tell me a story about a fox named Pip who wants to fly.",
        ],
    ),
    (
        &["How are you?", "How are you today?", "Are you well?", "How do you do?"],
        &["I am well, thank you. Would you like a story?", "I am fine, and full of stories."],
    ),
    (
        &["Thank you!", "Thanks", "Thank you.", "Thanks a lot!", "That was nice.", "Good story!", "I liked it."],
        &["You are welcome! Shall I tell another one?", "I am glad you liked it.", "You are welcome!"],
    ),
    (
        &["Goodbye!", "Bye", "Good night.", "Good night!", "See you soon.", "bye"],
        &["Goodbye! Come back for another story.", "Good night, and sweet dreams!", "Goodbye!"],
    ),
    (
        &["What is Forebay?", "Tell me about Forebay.", "Who built you?", "Who made you?", "Where do you live?"],
        &[
            "Forebay is a server for language models. I am the tiny model that is built into it.",
            "I was trained for Forebay, a server for language models, so that it can answer at once.",
        ],
    ),
    (
        &["Are you smart?", "Do you know everything?", "Are you always right?", "Can I trust you?"],
        &[
            "No, I am very small. I know only little stories.",
            "I am a tiny model, so please do not believe everything I say.",
        ],
    ),
];

pub static DEFINITIONS: Table = Table::new(
    "fox=a clever wild animal with red fur and a bushy tail, rabbit=a soft animal with long ears that eats grass, \
     bear=a large furry animal that likes honey and sleeps in winter, owl=a bird that hunts at night and turns its head far around, \
     frog=a green animal that jumps and lives near ponds, turtle=a slow animal that carries its shell on its back, \
     hedgehog=a small animal covered with sharp spines, squirrel=a quick animal that hides nuts in trees, \
     beaver=an animal with flat tail that builds dams, otter=a playful animal that swims in rivers, \
     mole=an animal that digs tunnels under the ground, whale=the largest animal in the ocean, \
     dolphin=a friendly sea animal that jumps out of the water, octopus=a sea animal with eight arms, \
     spider=a small creature with eight legs that spins webs, bee=an insect that makes honey, ant=a tiny insect that works all day, \
     butterfly=an insect with colorful wings, caterpillar=a crawling insect that becomes a butterfly, \
     penguin=a bird that swims but cannot fly, parrot=a colorful bird that can learn to speak, eagle=a great bird with sharp eyes, \
     camel=an animal that carries loads through the desert, kangaroo=an animal that hops and carries its young in a pouch, \
     giraffe=a very tall animal with a long neck, elephant=a huge gray animal with a trunk, zebra=a wild horse with black and white stripes, \
     lion=a big cat with a loud roar, wolf=a wild animal that lives in a pack, horse=a strong animal that people ride, \
     cow=a farm animal that gives milk, sheep=a farm animal that gives wool, baker=a person who makes bread, \
     tailor=a person who sews clothes, carpenter=a person who builds with wood, blacksmith=a person who works with hot iron, \
     farmer=a person who grows food, sailor=a person who works on a ship, pilot=a person who flies a plane, \
     teacher=a person who helps others learn, doctor=a person who helps the sick, librarian=a person who takes care of books, \
     inventor=a person who makes new things, astronaut=a person who travels in space, gardener=a person who takes care of plants, \
     potter=a person who makes pots from clay, weaver=a person who makes cloth, shepherd=a person who watches over sheep, \
     beekeeper=a person who keeps bees, clockmaker=a person who builds and mends clocks, knight=a soldier who rides a horse and wears armor, \
     compass=a tool that shows where north is, telescope=a tool that makes far things look near, hammer=a tool for driving nails, \
     needle=a thin tool for sewing, anchor=a heavy hook that keeps a ship in place, lantern=a lamp that can be carried, \
     umbrella=a thing that keeps the rain off, mirror=a glass that shows your own face, clock=a machine that tells the time, \
     map=a picture of places and the ways between them, key=a small tool that opens a lock, kite=a toy that flies in the wind on a string, \
     drum=an instrument that you hit to make a sound, flute=a thin instrument that you blow, violin=an instrument with four strings and a bow, \
     harp=a tall instrument with many strings, trumpet=a bright loud instrument made of brass, \
     lighthouse=a tower with a lamp that warns ships, bridge=a road built over water, harbor=a safe place for ships, \
     island=land with water all around it, desert=a dry place with much sand, forest=a place where many trees grow, \
     river=a long stream of water that runs to the sea, lake=a large body of still water, mountain=a very high hill, \
     valley=the low land between hills, volcano=a mountain that throws out fire and ash, glacier=a slow river of ice, \
     waterfall=a place where a river falls over rocks, swamp=a wet land full of mud and reeds, meadow=a field of grass and flowers, \
     cave=a hollow place inside a rock, castle=a large house with thick walls and towers, library=a place full of books, \
     museum=a house where old and beautiful things are shown, bakery=a shop that sells bread, orchard=a garden of fruit trees, \
     dragon=a creature of stories that breathes fire, giant=a very tall creature of stories, mermaid=a creature of stories that is half fish, \
     unicorn=a horse of stories with one horn, phoenix=a bird of stories that rises from ashes, ghost=a spirit in stories, \
     robot=a machine that can move and work, story=a tale about someone who wants something, poem=a short text with a rhythm, \
     wish=something that you hope for, dream=a picture that comes while you sleep, friend=someone who likes you and helps you, \
     promise=a word that you must keep, secret=something that only a few people know, rainbow=an arc of colors in the sky, \
     cloud=a great many tiny drops of water in the sky, star=a far sun that shines at night, comet=a ball of ice with a long tail, \
     planet=a large ball that moves around a star, snowflake=a tiny crystal of ice, storm=a strong wind with rain, \
     seed=a small thing from which a plant grows, candle=a stick of wax with a wick that burns, pillow=a soft cushion for the head, ladder=two poles with rungs for climbing, \
     bicycle=a vehicle with two wheels and pedals, wagon=a cart with four wheels, tunnel=a passage under the ground, \
     canal=a river dug by people, dam=a wall that holds back water, well=a deep hole with water at the bottom, \
     windmill=a mill whose sails turn in the wind, chimney=a pipe that carries smoke out of a house, \
     thermometer=an instrument that measures heat, calendar=a table of the days of the year, dictionary=a book that explains words, \
     newspaper=sheets that print the news each day, envelope=a paper cover for a letter, stamp=a small sticker that pays for a letter, \
     wallet=a small case for money, backpack=a bag carried on the shoulders, tent=a shelter made of cloth, \
     hammock=a hanging bed between two trees, parachute=a cloth that slows a fall, submarine=a boat that travels underwater, \
     helicopter=an aircraft with spinning blades, rocket=an engine that flies into space, satellite=a thing that circles a planet, \
     galaxy=a huge cluster of stars, eclipse=a moment when the moon hides the sun, earthquake=a sudden shaking of the ground, \
     tornado=a twisting tower of wind, avalanche=a mass of sliding snow, iceberg=a mountain of floating ice, \
     tide=the rise and fall of the sea, echo=a sound that bounces back, shadow=a dark shape where light is blocked, \
     puddle=a little pool left by rain, pebble=a small smooth stone, fossil=the trace of a creature that died long ago, \
     skeleton=the bones inside a body, muscle=a part of the body that pulls, heart=the organ that pumps blood, \
     lung=an organ for breathing, brain=the organ we think with, tooth=a hard thing in the mouth for chewing, \
     feather=a light thing that covers a bird, nest=a home that a bird builds, burrow=a hole where an animal lives, \
     herd=a group of cows or other grazing animals, flock=a group of birds or sheep, swarm=a cloud of insects, \
     hive=a house for bees, cocoon=a silky case of a caterpillar, tadpole=a baby frog with a tail, kitten=a baby cat, puppy=a baby dog, \
     calf=a baby cow, foal=a baby horse, piglet=a baby pig, duckling=a baby duck, gosling=a baby goose, \
     judge=a person who decides in a court, plumber=a person who repairs pipes, electrician=a person who installs wires, \
     dentist=a person who cares for teeth, surgeon=a doctor who operates, pharmacist=a person who prepares medicine, \
     architect=a person who designs buildings, sculptor=an artist who shapes stone, composer=a person who invents music, \
     conductor=a person who leads an orchestra, actor=a person who plays a role on a stage, author=a person who writes books, \
     editor=a person who improves texts, detective=a person who solves mysteries, soldier=a person who serves in an army, \
     merchant=a person who buys and sells goods, butcher=a person who sells meat, cobbler=a person who repairs shoes, \
     miner=a person who digs for coal or ore, mason=a person who builds with bricks, barber=a person who cuts hair, \
     waiter=a person who serves meals, guide=a person who shows the way, guard=a person who protects others, \
     referee=a person who watches over the rules of a game, orphan=a child without parents, neighbor=a person who lives next door, \
     guest=a person who visits, hero=a person who does a brave deed, villain=the wicked one in a tale, \
     riddle=a question with a hidden answer, fable=a tale about animals with a lesson, legend=a very old tale, \
     rhyme=two words that end with the same sound, verb=a word for an action, noun=a word for a thing, \
     adjective=a word that describes a noun, sentence=a group of words that makes sense, paragraph=several sentences that belong together, \
     alphabet=the letters of a language in order, vowel=a letter like a or e, number=a word or sign for how many, \
     sum=the result of adding, ruler=a stick for measuring, scale=an instrument that weighs things, \
     battery=a thing that stores electricity, switch=a part that turns something on or off, wheel=a round thing that turns, \
     lever=a bar that helps to lift heavy loads, pulley=a wheel with a rope for lifting, spring=a coil that bounces back, \
     screw=a nail with a spiral, magnet=a piece of iron that attracts iron, prism=a glass that splits light into colors, \
     lens=a curved glass that bends light, camera=a device that takes pictures, radio=a device that receives voices from afar, \
     telephone=a device for talking across a distance, keyboard=a board of buttons for typing, screen=a surface that shows pictures, \
     program=a list of steps for a computer, error=something that went wrong, cache=a place that keeps things ready, \
     batch=a group of things handled together, block=a piece of a fixed size, stream=a flow that keeps coming, prompt=a text that asks for an answer, \
     sample=a small part that shows the whole, rule=something that must be followed, law=a rule of a country, vote=a choice made by raising hands, \
     king=a man who rules a country, queen=a woman who rules a country, crown=the golden hat of a ruler, throne=the chair of a ruler, \
     village=a small group of houses, city=a very large town, capital=the main city of a country, border=the line between two countries, \
     continent=one of the great lands of the earth, ocean=a vast salty sea, equator=the line around the middle of the earth, \
     horizon=the line where sky and earth meet, acorn=the nut of an oak tree, mushroom=a soft thing that grows in wet woods, \
     pumpkin=a large orange vegetable, apple=a round fruit that grows on a tree, carrot=a long orange root that rabbits love, \
     server=a computer that answers the requests of other computers, computer=a machine that works with numbers and words, \
     language model=a program that guesses the next word, token=a small piece of text, queue=a line of those who wait, \
     circle=a round shape, triangle=a shape with three sides, square=a shape with four equal sides, cube=a box with six equal sides, \
     year=the time of twelve months, week=a time of seven days, month=a part of the year, minute=a time of sixty seconds, \
     hour=a time of sixty minutes, century=a time of one hundred years, dozen=a group of twelve, pair=a group of two",
);

/// `plurals/singular: members`.
pub const CATEGORIES: &[&str] = &[
    "fruits/fruit: apple, pear, plum, cherry, banana, orange, lemon, peach, grape, fig, melon, mango, strawberry, raspberry, kiwi, apricot, coconut, pineapple",
    "vegetables/vegetable: carrot, potato, onion, cabbage, turnip, bean, pea, leek, spinach, radish, beet, cucumber, tomato, pepper, celery, lettuce",
    "animals/animal: fox, bear, rabbit, wolf, deer, lion, tiger, mouse, horse, goat, sheep, otter, badger, monkey",
    "birds/bird: owl, robin, sparrow, eagle, swan, duck, goose, crow, stork, parrot, finch, hawk, raven, heron, pigeon",
    "insects/insect: ant, bee, beetle, butterfly, moth, cricket, fly, wasp, dragonfly, grasshopper",
    "trees/tree: oak, pine, birch, maple, willow, elm, cedar, beech, ash, spruce, poplar, chestnut",
    "flowers/flower: rose, tulip, daisy, lily, violet, sunflower, poppy, daffodil, orchid, iris, marigold, lavender",
    "colors/color: red, blue, green, yellow, purple, orange, pink, brown, black, white, gray, gold, silver",
    "instruments/instrument: drum, flute, violin, trumpet, harp, piano, guitar, cello, banjo, clarinet, trombone, accordion",
    "tools/tool: hammer, saw, wrench, shovel, rake, drill, axe, chisel, screwdriver, ladder, pliers",
    "jobs/job: baker, farmer, doctor, teacher, sailor, tailor, pilot, painter, cook, nurse, carpenter",
    "vehicles/vehicle: car, train, boat, plane, bicycle, bus, truck, tractor, wagon, ship, sled, tram",
    "shapes/shape: circle, square, triangle, rectangle, oval, star, diamond, cube, cone",
    "clothes/garment: hat, coat, scarf, shirt, sock, glove, boot, dress, sweater, jacket, belt, vest",
    "drinks/drink: water, tea, milk, juice, cocoa, coffee, lemonade, cider",
    "sports/sport: soccer, tennis, swimming, running, rowing, skiing, hockey, golf, boxing, archery",
    "seasons/season: spring, summer, autumn, winter",
    "metals/metal: iron, gold, silver, copper, tin, lead, nickel, zinc",
    "spices/spice: salt, cinnamon, ginger, vanilla, mustard, nutmeg, clove, saffron",
    "fish/fish: salmon, trout, herring, cod, carp, perch, tuna, eel, sardine, haddock, pike, sturgeon",
    "planets/planet: Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune",
    "countries/country: Norway, Japan, Brazil, Kenya, Canada, India, Spain, Greece, Egypt, Peru, Iceland, Finland, Chile, Nepal, Ghana, Portugal",
    "gems/gem: ruby, emerald, sapphire, opal, topaz, amber, amethyst, garnet, turquoise, jade",
    "fabrics/fabric: cotton, wool, silk, linen, velvet, denim, felt, lace, satin, flannel",
    "pieces of furniture/piece of furniture: table, chair, bed, sofa, shelf, desk, cupboard, bench, stool, wardrobe, cradle",
    "parts of the body/part of the body: arm, leg, hand, foot, knee, elbow, shoulder, finger, toe, ear, nose, chin, neck, ankle, wrist",
    "things in a kitchen/thing in a kitchen: pot, pan, spoon, fork, knife, kettle, oven, whisk, plate, bowl, ladle, sieve, mug",
    "desserts/dessert: cake, pie, pudding, custard, tart, sorbet, trifle, brownie, cupcake, waffle",
    "herbs/herb: basil, mint, parsley, thyme, sage, rosemary, dill, oregano, chive, fennel",
    "games/game: chess, checkers, tag, marbles, dominoes, hopscotch, leapfrog, charades, cards, darts",
    "dances/dance: waltz, tango, polka, ballet, jig, minuet, samba, reel",
    "buildings/building: house, church, tower, barn, factory, hospital, station, temple, palace, cottage, hotel, mill",
    "boats/boat: canoe, raft, ferry, kayak, sailboat, tugboat, barge, yacht, gondola, rowboat",
    "members of a family/member of a family: mother, father, sister, brother, aunt, uncle, cousin, niece, nephew, grandmother, grandfather",
    "languages/language: English, French, Spanish, German, Latin, Swedish, Arabic, Hindi, Swahili, Welsh",
    "parts of a plant/part of a plant: root, stem, leaf, flower, seed, bud, petal, thorn, bark, twig",
    "kinds of weather/kind of weather: rain, snow, hail, fog, wind, sunshine, thunder, drizzle, frost, sleet",
    "school subjects/school subject: reading, writing, arithmetic, history, geography, music, art, science, grammar, drawing",
    "materials/material: wood, stone, glass, paper, clay, leather, brick, rubber, plastic, wax, marble, concrete",
    "reptiles/reptile: snake, lizard, turtle, crocodile, alligator, gecko, iguana, chameleon, python, cobra",
    "dogs/dog: poodle, beagle, collie, terrier, bulldog, dachshund, spaniel, hound, husky, pug",
    "nuts/nut: walnut, hazelnut, almond, acorn, chestnut, pecan, cashew, pistachio, peanut",
    "grains/grain: wheat, rye, barley, oats, rice, corn, millet, buckwheat",
    "parts of a ship/part of a ship: mast, sail, anchor, rudder, deck, cabin, hull, keel, bow, stern",
    "feelings/feeling: joy, sorrow, anger, fear, surprise, hope, pride, envy, shame, love, boredom",
    "containers/container: box, bag, basket, barrel, bottle, jar, bucket, crate, sack, tin, trunk, suitcase",
    "sounds/sound: bang, whisper, buzz, crash, hum, rattle, hiss, squeak, thud, chime, rumble",
    "parts of a house/part of a house: roof, wall, door, window, floor, chimney, stair, gate, porch, balcony, ceiling",
    "farm things/farm thing: plow, fence, tractor, haystack, scarecrow, silo, trough, wheelbarrow, pitchfork, henhouse",
    "rooms/room: kitchen, bedroom, bathroom, attic, cellar, hall, pantry, nursery",
];

pub static OPPOSITES: Table = Table::new(
    "big/small, hot/cold, tall/short, fast/slow, day/night, happy/sad, light/dark, old/young, up/down, in/out, open/closed, \
     wet/dry, hard/soft, loud/quiet, full/empty, rich/poor, strong/weak, high/low, left/right, early/late, near/far, \
     clean/dirty, thick/thin, wide/narrow, deep/shallow, heavy/easy, sweet/sour, brave/afraid, first/last, begin/end, \
     win/lose, remember/forget, push/pull, laugh/cry, give/take, love/hate, inside/outside, above/below, always/never, \
     many/few, true/false, friend/enemy, sharp/dull, smooth/rough, kind/cruel, summer/winter, north/south, east/west",
);

/// Questions that the storyteller declines.
pub const TOO_HARD: &[&str] = &[
    "What is the capital of France?",
    "What is the capital of Japan?",
    "Who is the president?",
    "Explain quantum physics.",
    "Write a program in Python.",
    "Write some code.",
    "What is the weather today?",
    "What time is it?",
    "What is the meaning of life?",
    "Translate this into German.",
    "Solve this equation.",
    "Who won the war?",
    "How do I cook rice?",
    "Tell me the news.",
    "What is the speed of light?",
    "How far is the moon?",
    "Who wrote Hamlet?",
    "Explain how a computer works.",
    "What should I invest in?",
    "Write an essay about history.",
    "How does an engine work?",
    "What is the largest country?",
    "Give me some advice.",
    "Which phone should I buy?",
    "What is machine learning?",
    "How old is the earth?",
    "Write a poem about the sea.",
    "Explain batching.",
    "What is the price of gold?",
    "Who invented the telephone?",
    "Summarize this article.",
    "Fix my code.",
    "What is photosynthesis?",
    "Write a letter to my boss.",
    "Play some music.",
    "What is chemistry?",
    "Write a function that sorts a list.",
    "How many people live in China?",
    "What is the square root of two?",
];

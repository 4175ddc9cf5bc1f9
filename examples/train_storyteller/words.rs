//! The word tables of the corpus. Plain data: one long list per kind of word.

use std::sync::OnceLock;

use crate::rng::Rng;

/// A comma-separated list, split on first use.
pub struct Table {
    text: &'static str,
    rows: OnceLock<Vec<&'static str>>,
}

impl Table {
    pub const fn new(text: &'static str) -> Self {
        Table { text, rows: OnceLock::new() }
    }

    pub fn all(&self) -> &[&'static str] {
        self.rows.get_or_init(|| self.text.split(',').map(str::trim).filter(|row| !row.is_empty()).collect())
    }

    pub fn pick(&self, rng: &mut Rng) -> &'static str {
        rng.pick(self.all())
    }
}

pub static HER_NAMES: Table = Table::new(
    "Ada, Agnes, Alba, Alice, Alma, Amara, Amelia, Amy, Anna, Annie, Anya, Aria, Astrid, Aurora, Ava, Beatrice, Bella, \
     Bessie, Betty, Bianca, Bonnie, Bridget, Brie, Camilla, Cara, Celia, Chloe, Clara, Clover, Cora, Daisy, Dana, Daphne, \
     Delia, Della, Dora, Dorothy, Edith, Effie, Elena, Eliza, Ella, Elsa, Emily, Emma, Erin, Esme, Esther, Etta, Eva, \
     Fay, Fern, Fiona, Flora, Florence, Freya, Frida, Gemma, Gilda, Ginny, Grace, Greta, Gwen, Hana, Hannah, Harriet, \
     Hazel, Heidi, Helen, Hilda, Holly, Hope, Ida, Ines, Inga, Iris, Isla, Ivy, Jade, Jane, Jasmine, Jenny, Jill, Josie, \
     Joy, Julia, June, Kaia, Karin, Kate, Katie, Kira, Lara, Laura, Leah, Lena, Lila, Lily, Lina, Linnea, Lola, Lottie, \
     Lotus, Lucy, Luna, Mabel, Maggie, Maple, Mara, Margo, Maria, Marigold, Martha, Mary, Matilda, Maud, Maya, Meg, \
     Mia, Millie, Mimi, Mina, Mira, Molly, Mona, Myra, Myrtle, Nadia, Nancy, Nell, Nina, Noor, Nora, Odette, Olga, \
     Olive, Olivia, Opal, Paige, Pansy, Pearl, Penny, Petra, Petunia, Phoebe, Pippa, Polly, Poppy, Posy, Prudence, \
     Rhea, Rita, Roberta, Rosa, Rosie, Ruby, Ruth, Sadie, Sally, Sara, Selma, Signe, Sofia, Stella, Sunny, Susan, Suki, \
     Tabitha, Tara, Tess, Thea, Tilda, Tilly, Tina, Tulip, Uma, Una, Vera, Vicky, Viola, Violet, Wanda, Wendy, Willa, \
     Willow, Winnie, Wren, Yara, Yasmin, Zara, Zelda, Zoe",
);

pub static HIS_NAMES: Table = Table::new(
    "Aaron, Abel, Adam, Albert, Alfie, Amos, Andy, Anton, Archie, Arlo, Arthur, Asa, Ash, Axel, Barnaby, Basil, Ben, Benny, \
     Bert, Billy, Bjorn, Bo, Boris, Bram, Bruno, Buster, Caleb, Carl, Casper, Cedric, Charlie, Clarence, Clem, Cliff, \
     Colin, Conrad, Cosmo, Cyrus, Dale, Dan, Dario, David, Dennis, Dexter, Diego, Digby, Duncan, Dusty, Earl, Eddie, \
     Edgar, Edmund, Eli, Elliot, Elmer, Emil, Enzo, Eric, Ernie, Ezra, Felix, Fergus, Finn, Fletcher, Floyd, Francis, \
     Frank, Fred, Freddie, Gabe, Gary, George, Gil, Gordon, Grover, Gus, Hal, Hank, Hans, Harold, Harry, Harvey, Hector, \
     Henry, Herbert, Hiro, Homer, Horace, Hubert, Hugo, Ian, Igor, Ike, Isaac, Ivan, Jack, Jacob, Jake, James, Jasper, \
     Jed, Jem, Jesse, Jim, Joel, John, Jonah, Jonas, Jules, Kai, Karl, Kenji, Kit, Kurt, Lars, Leo, Leon, Leroy, Lewis, \
     Liam, Linus, Lionel, Louis, Luca, Lucas, Luke, Magnus, Malik, Marco, Mark, Marvin, Max, Merlin, Mick, Miles, Milo, \
     Monty, Morris, Mortimer, Moss, Nate, Ned, Nico, Nigel, Noah, Norman, Odin, Olaf, Oliver, Omar, Orson, Oscar, Otis, \
     Otto, Owen, Pablo, Paul, Pedro, Percy, Perry, Peter, Phil, Pip, Quentin, Quincy, Ralph, Ravi, Ray, Remy, Reggie, \
     Rex, Rhys, Rico, Robin, Rocky, Roger, Rollo, Roman, Rory, Rufus, Rupert, Rusty, Sam, Samir, Sandy, Saul, Scout, \
     Sebastian, Seth, Sid, Silas, Simon, Smudge, Sol, Spencer, Stan, Sven, Tariq, Ted, Teddy, Theo, Thor, Tim, Timmy, \
     Toby, Tom, Tomas, Tommy, Tony, Tucker, Ugo, Ulf, Victor, Vince, Wally, Walter, Warren, Wilbur, Will, Willie, Winston, \
     Wolf, Yusuf, Zack, Zeke, Ziggy",
);

pub static ANIMALS: Table = Table::new(
    "fox, rabbit, bear, mouse, cat, dog, owl, frog, duck, hen, goat, sheep, lamb, pony, horse, donkey, cow, pig, goose, \
     turtle, tortoise, hedgehog, squirrel, badger, beaver, otter, mole, rat, hamster, wolf, deer, moose, lion, tiger, \
     elephant, giraffe, zebra, monkey, camel, kangaroo, koala, panda, penguin, seal, whale, dolphin, crab, octopus, snail, \
     spider, ant, bee, butterfly, beetle, ladybug, cricket, firefly, moth, caterpillar, worm, crow, raven, robin, sparrow, \
     parrot, pigeon, swan, stork, crane, pelican, seagull, eagle, hawk, peacock, turkey, rooster, chick, kitten, puppy, \
     cub, fawn, calf, foal, lizard, gecko, chameleon, snake, toad, newt, salamander, bat, raccoon, skunk, weasel, ferret, \
     llama, alpaca, walrus, lemur, sloth, hippo, rhino, lynx, heron, magpie, finch, mule, ox, yak, porcupine, possum, \
     starfish, seahorse, lobster, jellyfish, flamingo, puffin, woodpecker, dragonfly, grasshopper, guinea pig, aardvark, anteater, antelope, armadillo, baboon, bison, buffalo, bullfinch, canary, \
     cheetah, chimpanzee, chipmunk, cockatoo, coyote, cuckoo, dormouse, dove, falcon, gazelle, gibbon, gorilla, hare, hyena, iguana, jackal, \
     jaguar, kingfisher, lark, leopard, manatee, marmot, meerkat, mongoose, muskrat, narwhal, nightingale, ocelot, orangutan, ostrich, \
     panther, partridge, pheasant, platypus, quail, reindeer, sandpiper, shrew, starling, swallow, tapir, toucan, vole, vulture, wombat, wren",
);

/// Kinds of people; a leading `+` marks "she", a leading `-` marks "he".
pub static PEOPLE: Table = Table::new(
    "+girl, -boy, +princess, -prince, +queen, -king, +grandmother, -grandfather, +witch, -wizard, farmer, baker, painter, \
     sailor, fisher, gardener, tailor, teacher, doctor, carpenter, blacksmith, potter, weaver, shepherd, miller, cook, \
     clockmaker, musician, dancer, singer, juggler, poet, postman, pilot, pirate, knight, explorer, inventor, librarian, \
     shoemaker, beekeeper, mapmaker, lamplighter, toymaker, bellringer, astronaut, firefighter, nurse, hunter, ferryman, \
     woodcutter, goatherd, candle maker, student, child, drummer, chimney sweep, shopkeeper, ranger, mayor, acrobat, apprentice, archer, archivist, astronomer, barber, bookbinder, \
     captain, cartographer, clown, cobbler, composer, conductor, detective, diver, duke, emperor, engineer, fiddler, glassblower, goldsmith, \
     guard, hermit, innkeeper, jester, jeweler, locksmith, magician, mason, merchant, messenger, minstrel, monk, night watchman, nun, peddler, \
     plumber, porter, printer, ringmaster, sculptor, scribe, squire, stable hand, tinker, tourist, violinist, traveler, washerwoman, +aunt, -uncle",
);

pub static WONDERS: Table = Table::new(
    "dragon, robot, giant, elf, dwarf, ghost, snowman, scarecrow, troll, fairy, mermaid, unicorn, goblin, gnome, \
     phoenix, griffin, wooden puppet, rag doll, tin soldier, teddy bear, paper boat, kite, cloud, star, teapot, pumpkin, \
     train, tugboat, toy car, lantern, clock, broom, moonbeam, raindrop, snowflake, pebble",
);

pub static TRAITS: Table = Table::new(
    "small, young, old, brave, shy, kind, clever, curious, gentle, cheerful, quiet, lonely, sleepy, hungry, grumpy, proud, \
     patient, careful, careless, playful, stubborn, honest, friendly, polite, restless, thoughtful, dreamy, merry, \
     lively, nervous, bold, silly, tiny, tall, round, plump, skinny, fluffy, spotted, striped, gray, brown, red, white, \
     golden, clumsy, quick, slow, strong, wise, messy, tidy, generous, humble, jolly, bashful, fearless, forgetful, \
     hopeful, loyal, modest, noisy, serious, warm-hearted, little, chatty, sensible, daring, timid, graceful, bright-eyed, absent-minded, adventurous, anxious, barefoot, bearded, bossy, calm, \
     charming, courageous, crafty, dapper, determined, drowsy, eager, elegant, freckled, frail, gallant, giddy, greedy, handsome, \
     hasty, helpful, homesick, imaginative, impatient, lazy, long-legged, mischievous, musical, mysterious, naughty, nimble, \
     obedient, ordinary, peculiar, penniless, puzzled, ragged, reckless, rosy, rude, sharp-nosed, sincere, solemn, soft-spoken, \
     spirited, sturdy, superstitious, talented, talkative, thrifty, trustworthy, unlucky, vain, wandering, weary, witty, wrinkled",
);

/// Homes, as `preposition:noun`.
pub static PLACES: Table = Table::new(
    "in:valley, on:hill, in:forest, by:lake, by:river, on:island, in:village, in:town, in:city, on:farm, in:garden, \
     in:meadow, in:cave, in:castle, in:lighthouse, in:cottage, in:barn, in:tower, on:mountain, in:desert, in:jungle, \
     in:swamp, on:beach, in:harbor, in:windmill, in:treehouse, in:burrow, in:orchard, in:vineyard, in:library, in:museum, \
     in:toy shop, in:bakery, in:kitchen, in:attic, in:cellar, under:bridge, by:well, by:waterfall, in:canyon, on:cliff, \
     on:prairie, in:pond, by:stream, by:brook, in:grove, in:wood, in:park, in:zoo, in:circus, in:tent, on:ship, on:boat, \
     in:palace, in:cabin, in:hut, in:hollow tree, under:oak tree, in:pine forest, in:greenhouse, in:market square, \
     on:rooftop, in:bell tower, in:monastery, in:school, in:train station, in:workshop, in:mill, in:stable, in:quarry, \
     in:mine, by:fountain, in:maze, on:glacier, by:hot spring, in:lagoon, on:reef, in:bay, on:peninsula, in:marsh, \
     in:field, on:plateau, on:dune, by:pier, in:courtyard, in:theater, in:observatory, in:space station, on:street, \
     in:nest, in:shipyard, in:hamlet, by:crossroads, in:wheat field, in:bamboo forest, in:rose garden, in:snowy pass, in:alley, in:amphitheater, in:aquarium, on:balcony, in:blacksmith's forge, in:boathouse, in:botanical garden, \
     in:brickyard, in:canal town, in:caravan, in:cathedral, in:chapel, in:clearing, in:cloister, in:coal cellar, in:corn field, in:crater, in:den, on:dock, \
     in:factory, in:fishing village, in:fortress, in:gallery, in:glen, in:gorge, in:grotto, in:hayloft, in:hospital, in:hotel, in:igloo, in:inn, \
     in:kingdom, in:lake town, in:laundry, in:manor, in:moor, in:nursery, in:oasis, in:pasture, in:pottery, in:printing house, \
     in:ravine, on:riverbank, on:savanna, in:shed, in:shrine, in:stadium, in:suburb, in:tavern, in:temple, in:thicket, on:tundra, in:warehouse, in:watchtower",
);

pub static PLACE_WORDS: Table = Table::new(
    "green, quiet, little, sunny, windy, foggy, misty, old, dark, deep, wide, narrow, distant, hidden, peaceful, busy, \
     snowy, sandy, rocky, grassy, mossy, muddy, dusty, lonely, pretty, crooked, forgotten, ancient, enormous, cozy, \
     warm, cool, bright, silent, noisy, steep, leafy, silver, golden, blue, purple, rainy, cheerful, sleepy, shady, \
     beautiful, lovely, faraway, tiny, strange, secret, frosty, stony, crowded, wild, abandoned, famous, humble, magical, autumn, barren, blooming, breezy, bustling, charming, chilly, \
     curious, damp, dim, dreary, echoing, empty, faded, fragrant, gentle, gigantic, gloomy, golden, hazy, lively, marshy, moonlit, northern, \
     overgrown, painted, patchwork, plain, remote, restful, ruined, scenic, sheltered, shimmering, slippery, southern, splendid, starlit, \
     stormy, sunlit, terraced, thorny, tidy, tranquil, twisting, unknown, western, whispering, winding",
);

/// Skills, as `infinitive=past with a picture=gerund`.
pub static SKILLS: Table = Table::new(
    "fly=flew high above the rooftops=flying, swim=swam all the way across the water=swimming, \
     sing=sang so sweetly that everyone stopped to listen=singing, dance=danced under the moon until midnight=dancing, \
     paint=painted a picture of the sunrise=painting, read=read a whole book from beginning to end=reading, \
     write=wrote a long letter with not one mistake=writing, climb trees=climbed to the very top of the tallest tree=climbing, \
     whistle=whistled a merry tune=whistling, juggle=juggled five oranges at once=juggling, \
     play the drum=played the drum in the parade=drumming, play the flute=played a soft song on the flute=playing, \
     play the violin=played the violin for the whole town=playing, skate=skated in perfect circles=skating, \
     ski=skied down the slope without falling=skiing, sail=sailed around the bay and back=sailing, \
     row a boat=rowed straight across the lake=rowing, ride a bicycle=rode a bicycle down the lane=riding, \
     ride a horse=rode a horse along the shore=riding, tell jokes=told a joke that made even the owl laugh=joking, \
     count to one hundred=counted to one hundred without stopping=counting, \
     tie knots=tied a knot that held the boat fast=knotting, sew=sewed a fine coat with bright buttons=sewing, \
     knit=knitted a long striped scarf=knitting, cook=cooked a supper for twelve guests=cooking, \
     jump over the fence=jumped over the fence with room to spare=jumping, run fast=ran faster than the wind=running, \
     catch a ball=caught the ball with one hand=catching, do magic tricks=pulled a coin from behind an ear=magic, \
     make people laugh=made the whole crowd laugh=clowning, stand on one leg=stood on one leg for an hour=balancing, \
     walk on a rope=walked the rope from end to end=balancing, speak to the birds=spoke with the birds each morning=talking, \
     read the stars=read the stars like a map=stargazing, fix clocks=made the old clock tick again=fixing, \
     mend shoes=mended every shoe in the street=mending, grow roses=grew a rose as red as a sunset=gardening, \
     grow pumpkins=grew a pumpkin as big as a cart=gardening, skip stones=skipped a stone nine times=skipping, \
     draw maps=drew a map of every path and stream=drawing, bake bread=baked a loaf with a golden crust=baking, \
     dive=dived to the bottom and came up smiling=diving, surf=surfed a tall wave to the shore=surfing, \
     play chess=won a game of chess against the mayor=playing, roar=roared so loudly that the leaves shook=roaring, \
     howl at the moon=howled a lovely song to the moon=howling, hop=hopped from stone to stone=hopping, \
     build bridges=built a bridge that never shook=building, carve wood=carved a wooden bird that looked alive=carving, \
     speak in front of a crowd=spoke in front of the whole crowd=speaking, sleep without a lamp=slept all night without a lamp=sleeping, \
     spell long words=spelled the longest word in the book=spelling, tell the time=told the time without any help=telling time, \
     throw far=threw a stone over the river=throwing, make pots=made a round blue pot=pottery, \
     blow bubbles=blew a bubble as big as a house=blowing bubbles, fold paper birds=folded a hundred paper birds=folding, \
     keep a secret=kept a secret for a whole year=keeping secrets, wait=waited quietly until the time was right=waiting, \
     share=shared everything with a smile=sharing, be brave=walked through the dark with a steady step=being brave, \
     tell stories=told a story that nobody ever forgot=telling stories",
);

/// Things to see, as `infinitive object=what it was like`.
pub static SIGHTS: Table = Table::new(
    "the sea=the waves rolled in like soft blue hills, the northern lights=green and purple ribbons waved across the sky, \
     a rainbow=seven bright colors hung over the fields, the snow=white flakes covered every branch, \
     the full moon=it shone like a silver plate, a shooting star=it drew a bright line across the night, \
     the sunrise=the whole sky turned pink and gold, the big city=a thousand windows sparkled in the dark, \
     a real elephant=it was larger than a house and very gentle, the highest mountain=its white top touched the clouds, \
     the king's palace=its towers were made of white marble, the spring fair=flags and lanterns hung on every post, \
     a waterfall=the water fell with a sound like thunder, the desert=the sand was as soft as flour, \
     a volcano=it rumbled and glowed like an oven, the coral reef=fish of every color danced below, \
     a glacier=the old ice was as blue as glass, the harvest parade=drums and trumpets filled the streets, \
     the fireworks=sparks bloomed like flowers in the dark, a whale=it sang a long low song, \
     the cherry trees in bloom=petals fell like warm snow, the old lighthouse=its lamp turned slowly through the fog, \
     a circus=the acrobats flew through the air, the tallest tree=its top was hidden in the clouds, \
     the great library=there were more books than stars, a train=it puffed and whistled and shook the ground, \
     the hot air balloons=they floated up like bright fruit, the frozen lake=it was as smooth as a mirror, \
     the giant's garden=each apple was as large as a wagon, a comet=its long tail glittered for three nights, \
     the sunflower field=a million yellow faces looked at the sun, the singing sand=it hummed when the wind blew, \
     the night market=there were lamps and spices and sweet cakes, a castle in the clouds=its doors were made of mist, \
     the bottom of the sea=tiny lights moved about like stars, the other side of the hill=there was a valley full of flowers, \
     the penguins=they slid on their bellies and laughed, the land of the giants=even the daisies were as tall as towers",
);

pub static OBJECTS: Table = Table::new(
    "key, bell, crown, ring, map, lamp, feather, shell, pearl, coin, compass, mirror, drum, flute, violin, trumpet, book, \
     letter, hat, coat, scarf, boot, button, ribbon, umbrella, basket, kite, ball, doll, marble, spinning top, puzzle, \
     music box, clock, watch, telescope, candle, lantern, teacup, spoon, bottle, jar, box, chest, treasure, stone, crystal, \
     diamond, ruby, emerald, egg, acorn, seed, flower, rose, sunflower, clover, mushroom, apple, pear, pumpkin, star, \
     whistle, rope, ladder, wheel, wagon, sled, boat, anchor, net, hammer, needle, thread, blanket, pillow, cushion, \
     painting, paintbrush, pencil, notebook, magnet, statue, mask, cape, wand, sword, shield, helmet, glove, sock, \
     bracelet, necklace, brooch, harp, banjo, horn, globe, hourglass, snow globe, bird house, bone, tooth, horseshoe, accordion, almanac, apron, atlas, backpack, badge, barometer, barrel, bicycle, bonnet, bow tie, bugle, button box, cane, carpet, \
     cello, chalice, chess piece, cuckoo clock, cradle, cuff link, dagger, diary, drawing, envelope, fan, fishing rod, fossil, goblet, \
     handkerchief, inkwell, jigsaw piece, kettle, lens, locket, magnifying glass, medal, mitten, oar, paddle, parasol, pendant, \
     photograph, postcard, quill, rattle, rocking horse, saddle, sandal, scepter, scroll, shoelace, slipper, spyglass, stamp, suitcase, \
     tambourine, teapot, thimble, ticket, tile, toolbox, vase, wallet, weather vane, wig, xylophone, yarn ball, zither",
);

pub static OBJECT_WORDS: Table = Table::new(
    "golden, silver, copper, wooden, glass, red, blue, green, yellow, purple, white, black, orange, pink, lost, old, new, \
     tiny, giant, magic, shiny, rusty, broken, secret, singing, glowing, velvet, paper, silk, crystal, striped, spotted, \
     round, square, heavy, lucky, precious, strange, perfect, painted, forgotten, hidden, sparkling, woolen, polished, \
     dusty, ancient, curious, plain, beautiful, crooked, smooth, amber, azure, bent, bronze, carved, checkered, clay, cracked, crimson, dainty, \
     delicate, emerald, enchanted, engraved, faded, feathered, folded, fragile, frozen, gilded, gleaming, handmade, hollow, iron, ivory, jeweled, \
     knotted, leather, marble, matching, narrow, oval, patched, porcelain, quilted, royal, scarlet, scented, simple, stolen, tangled, \
     tattered, torn, turquoise, twisted, valuable, weathered, whispering, worn, wrapped",
);

/// Things to make, as `verb in infinitive/past:thing`.
pub static MAKINGS: Table = Table::new(
    "bake/baked:blueberry pie, bake/baked:birthday cake, bake/baked:loaf of bread, cook/cooked:pot of soup, \
     cook/cooked:feast, build/built:boat, build/built:tree house, build/built:bridge, build/built:snow fort, \
     build/built:sand castle, build/built:flying machine, build/built:raft, build/built:windmill, build/built:rocket, \
     build/built:stone wall, build/built:cozy house, build/built:cart, sew/sewed:warm quilt, sew/sewed:red dress, \
     knit/knitted:woolen blanket, paint/painted:portrait of the moon, paint/painted:picture of the sea, \
     write/wrote:poem, write/wrote:song, write/wrote:book, make/made:kite, make/made:crown of flowers, make/made:puppet, \
     make/made:music box, make/made:pair of wings, make/made:pot of honey, make/made:jar of jam, make/made:lantern, \
     make/made:map of the stars, grow/grew:garden, grow/grew:giant pumpkin, grow/grew:field of tulips, grow/grew:apple tree, \
     carve/carved:flute, carve/carved:wooden horse, plant/planted:forest, dig/dug:well, dig/dug:tunnel, weave/wove:basket, \
     weave/wove:carpet, open/opened:bakery, open/opened:toy shop, open/opened:little library, open/opened:tea house, \
     start/started:band, start/started:school, start/started:circus",
);

/// Wishes for company, as `infinitive=past`.
pub static BONDS: Table = Table::new(
    "make a friend=made a friend for life, have a party=gave a party with music and cake, win the race=won the race by a whisker, \
     find the way home=came home at last, help someone=helped more than anyone had ever done, \
     be as tall as the trees=found that being small was best of all, say sorry to the neighbors=said sorry and was forgiven, \
     give a present to the queen=gave the queen a present that made her smile, have a name day=had the finest name day of all, \
     win the singing contest=won the singing contest with a simple song, hear a lullaby=heard a lullaby and fell asleep smiling, \
     thank the moon=thanked the moon and saw it wink, make it rain=saw the rain come down at last, \
     stop the quarrel=ended the quarrel with a single joke, wake the sleeping giant=woke the giant with a gentle song, \
     save the old oak=saved the old oak from the axe, bring back the spring=brought back the spring, \
     cheer up the sad clown=made the sad clown smile again, surprise the baker=surprised the baker with a song, \
     catch the morning train=caught the morning train with a minute to spare, light the lighthouse=lit the lamp and every ship came home, \
     ring the great bell=rang the great bell for all to hear, feed the hungry birds=fed the birds all winter long, \
     be the captain of a ship=became the captain of a small white ship, lead the parade=led the parade through the town, \
     join the band=joined the band and played every evening, sleep under the stars=slept under the stars without a care, \
     travel around the world=traveled around the world and came back wiser, be a knight=became a knight with a wooden sword, \
     meet the moon=met the moon in a still pond, meet a dragon=met a dragon who loved tea, be invisible=learned that it is better to be seen",
);

pub static FOODS: Table = Table::new(
    "bread, cheese, soup, porridge, pancakes, honey, jam, butter, berries, nuts, apples, pears, plums, cherries, carrots, \
     turnips, beans, corn, rice, noodles, stew, pie, cake, cookies, biscuits, muffins, waffles, tea, milk, cocoa, cider, \
     lemonade, grapes, raisins, dates, figs, oranges, peaches, melons, pumpkin seeds, mushrooms, potatoes, dumplings, \
     omelets, toast, sandwiches, popcorn, pudding, custard, gingerbread, chestnuts, oatcakes, clover, sugar buns, almonds, apricots, bagels, barley soup, beetroot, blueberries, cabbage, candied ginger, cinnamon rolls, coconut, \
     crackers, cranberries, cream, crumpets, cucumbers, doughnuts, dried fish, fudge, garlic bread, gooseberries, hazelnuts, \
     jelly, kale, lentils, licorice, macaroni, maple syrup, marmalade, meringues, mint tea, mustard, olives, onions, pastries, peanuts, \
     peppermints, pickles, pineapple, pretzels, radishes, raspberries, roasted corn, rosehip tea, salad, scones, spinach, \
     strawberries, tarts, toffee, tomatoes, vanilla ice, walnuts, watermelon, yogurt",
);

pub static TIMES: Table = Table::new(
    "One morning, One day, One evening, One spring morning, One summer day, One autumn afternoon, One winter night, \
     One rainy day, One Monday, One Tuesday, One Wednesday, One Thursday, One Friday, One Saturday, One Sunday, \
     Early one morning, Late one evening, One cold morning, One bright afternoon, On the first day of spring, \
     On a quiet night, Just before dawn, After breakfast, When the snow melted, When the leaves turned red, \
     At the end of summer, One foggy morning, On the longest day of the year",
);

pub static FEELINGS: Table = Table::new(
    "happy, glad, proud, calm, grateful, thankful, cheerful, delighted, content, joyful, pleased, overjoyed, peaceful, \
     full of joy, very happy, warm inside, as happy as could be, happier than ever, merry, relieved",
);

//! What stands in the way, and how a helper ends it. Slots are defined in `story.rs`.

/// A difficulty and the sentence in which the helper ends it.
#[derive(Debug)]
pub struct Obstacle {
    pub trouble: &'static str,
    pub help: &'static str,
    /// The answer to "What stopped Pip?", a noun phrase.
    pub what: &'static str,
}

/// For those who set out.
pub const TRAVEL: &[Obstacle] = &[
    Obstacle {
        trouble: "But a wide river lay across the path, and there was no bridge.",
        help: "{M} showed {him} a row of flat stones, and they crossed the river one step at a time.",
        what: "a wide river",
    },
    Obstacle {
        trouble: "Soon a terrible storm began, with thunder and rain.",
        help: "{M} led {him} to a dry cave, and they waited there until the storm was over.",
        what: "a terrible storm",
    },
    Obstacle {
        trouble: "But the forest was so dark that {n} lost {his} way.",
        help: "{M} knew every tree, and {mhe} led {n} back to the path.",
        what: "a dark forest",
    },
    Obstacle {
        trouble: "Then thick fog rolled in, and {n} could not see {his} own feet.",
        help: "{M} had a lantern, and together they walked through the fog.",
        what: "the thick fog",
    },
    Obstacle {
        trouble: "But a grumpy troll stood in the way and would not let anyone pass.",
        help: "{M} gave the troll some {food}, and the troll stepped aside with a smile.",
        what: "a grumpy troll",
    },
    Obstacle {
        trouble: "But a high stone wall stood in {his} way.",
        help: "{M} pointed to a small green door, and it was not even locked.",
        what: "a high stone wall",
    },
    Obstacle {
        trouble: "But the way was long, and {n} grew very tired.",
        help: "{M} shared {mhis} {food} and walked the rest of the way with {n}.",
        what: "the long way",
    },
    Obstacle {
        trouble: "Then the wind blew {his} map away.",
        help: "{M} drew a new map in the sand, and it was better than the old one.",
        what: "the wind that took the map",
    },
    Obstacle {
        trouble: "But snow began to fall, and soon the road was gone.",
        help: "{M} had a sled, and they slid over the snow like birds.",
        what: "the deep snow",
    },
    Obstacle {
        trouble: "But a thorny hedge as tall as a house closed the road.",
        help: "{M} knew a gap in the hedge, and they crawled through it on their bellies.",
        what: "a thorny hedge",
    },
    Obstacle {
        trouble: "But an old gate blocked the road, and it had a riddle on it.",
        help: "{M} whispered the answer, which was \"tomorrow,\" and the gate swung open.",
        what: "a gate with a riddle",
    },
    Obstacle {
        trouble: "Then {n} fell into a deep hole and could not climb out.",
        help: "{M} let down a long rope and pulled until {n} was free.",
        what: "a deep hole",
    },
    Obstacle {
        trouble: "But the only bridge was broken.",
        help: "{M} brought some planks and nails, and before noon the bridge was mended.",
        what: "a broken bridge",
    },
    Obstacle {
        trouble: "But a flock of angry geese chased {him} away.",
        help: "{M} spoke with the geese, and it turned out that they were only hungry.",
        what: "a flock of angry geese",
    },
    Obstacle {
        trouble: "Night came, and {n} was afraid of the dark.",
        help: "{M} taught {him} the names of the stars, and the dark did not seem so dark anymore.",
        what: "the dark night",
    },
    Obstacle {
        trouble: "But the sun burned down, and there was no water anywhere.",
        help: "{M} dug in the sand until clear water bubbled up.",
        what: "the heat and the thirst",
    },
    Obstacle {
        trouble: "But {his} boat had a hole in it and began to sink.",
        help: "{M} closed the hole with wax and a piece of cloth.",
        what: "a hole in the boat",
    },
    Obstacle {
        trouble: "At the crossroads there were four signs, and all of them were empty.",
        help: "{M} listened to the wind and said, \"Take the left one.\"",
        what: "four empty signs",
    },
    Obstacle {
        trouble: "But a thief took {his} bag in the night.",
        help: "{M} followed the footprints and brought the bag back before breakfast.",
        what: "a thief",
    },
    Obstacle {
        trouble: "But the mountain was steep, and {n} slipped again and again.",
        help: "{M} tied a rope around them both, and they climbed it together.",
        what: "a steep mountain",
    },
    Obstacle {
        trouble: "Then {n} hurt {his} foot on a sharp stone.",
        help: "{M} wrapped the foot in cool leaves, and after a rest the pain was gone.",
        what: "a hurt foot",
    },
    Obstacle {
        trouble: "But a sleeping giant lay right across the road.",
        help: "{M} tickled the giant's nose with a feather, and the giant rolled over.",
        what: "a sleeping giant",
    },
    Obstacle {
        trouble: "But everybody {he} asked gave a different answer.",
        help: "{M} said, \"Ask the one who has been there,\" and pointed to an old raven.",
        what: "too many answers",
    },
    Obstacle {
        trouble: "But the ferry had already gone.",
        help: "{M} knew the ferryman and called him back with a whistle.",
        what: "the ferry that had gone",
    },
    Obstacle {
        trouble: "Soon the path became a swamp, and the mud held {his} feet.",
        help: "{M} laid down branches, and they walked over the mud as if it were a bridge.",
        what: "a muddy swamp",
    },
];

/// For those who practise.
pub const LEARNING: &[Obstacle] = &[
    Obstacle {
        trouble: "But {he} was afraid, and {his} legs would not stop shaking.",
        help: "{M} held {his} hand and said, \"Being brave means going on while you are afraid.\"",
        what: "fear",
    },
    Obstacle {
        trouble: "The first try went wrong, and so did the second.",
        help: "\"Try it more slowly,\" said {m}, and that was the best advice of all.",
        what: "many failures",
    },
    Obstacle {
        trouble: "But the others laughed at {him}.",
        help: "{M} said, \"They laugh because they have never tried,\" and stayed until the laughing stopped.",
        what: "the laughing of the others",
    },
    Obstacle {
        trouble: "But {he} was too small, or so it seemed.",
        help: "{M} put a stack of old books under {his} feet, and suddenly {n} was tall enough.",
        what: "being too small",
    },
    Obstacle {
        trouble: "But after an hour {he} was so tired that {he} wanted to give up.",
        help: "{M} made some {food} and told {him} to rest first and try again later.",
        what: "being tired",
    },
    Obstacle {
        trouble: "But nobody in the {place} could teach {him}.",
        help: "{M} had learned it long ago, and {mhe} gave {n} a lesson every evening.",
        what: "having no teacher",
    },
    Obstacle {
        trouble: "{He} fell down with a great crash.",
        help: "{M} helped {him} up and showed {him} where to put {his} feet.",
        what: "a bad fall",
    },
    Obstacle {
        trouble: "But {he} forgot every step as soon as {he} learned it.",
        help: "{M} made a little song out of the steps, and nobody forgets a song.",
        what: "forgetting the steps",
    },
    Obstacle {
        trouble: "But {he} was in too great a hurry, and everything went wrong.",
        help: "{M} gave {him} a snail to watch for an hour, and {n} learned to be patient.",
        what: "being in a hurry",
    },
    Obstacle {
        trouble: "But it rained for seven days, and {n} had to stay inside.",
        help: "{M} cleared the big barn, so there was a dry place to practice.",
        what: "seven days of rain",
    },
    Obstacle {
        trouble: "But the wind was strong and pushed {him} over each time.",
        help: "{M} found a quiet corner behind the wall where the wind could not come.",
        what: "the strong wind",
    },
    Obstacle {
        trouble: "\"I will never do it,\" {n} said with a tear on {his} cheek.",
        help: "{M} answered, \"Not yet is not the same as never.\"",
        what: "losing heart",
    },
    Obstacle {
        trouble: "But {his} teacher was very strict and shouted at every mistake.",
        help: "{M} told {him} that mistakes are only steps on the way up.",
        what: "a strict teacher",
    },
    Obstacle {
        trouble: "But somebody told {him} that it was forbidden.",
        help: "{M} asked the mayor, and the mayor laughed and said that everyone was allowed to try.",
        what: "a rule that was not true",
    },
    Obstacle {
        trouble: "But when people watched, {he} could not move at all.",
        help: "{M} whispered, \"Look only at me,\" and the crowd was forgotten.",
        what: "the watching crowd",
    },
    Obstacle {
        trouble: "But {he} had hurt {his} arm the day before.",
        help: "{M} put a cool bandage on it and told {him} to wait until Sunday.",
        what: "a hurt arm",
    },
];

/// For those who make something.
pub const MAKING: &[Obstacle] = &[
    Obstacle {
        trouble: "But the most important piece was missing.",
        help: "{M} had just the right piece in a drawer and was glad to give it away.",
        what: "a missing piece",
    },
    Obstacle {
        trouble: "But everything fell down with a loud crash.",
        help: "{M} came with a hammer and a smile, and they began again from the start.",
        what: "a loud crash",
    },
    Obstacle {
        trouble: "But {he} did not have any money to pay for it.",
        help: "{M} lent {him} three silver coins and asked for nothing in return.",
        what: "having no money",
    },
    Obstacle {
        trouble: "But the fire went out, and all the wood was wet.",
        help: "{M} brought dry wood from {mhis} own shed.",
        what: "wet wood",
    },
    Obstacle {
        trouble: "But a naughty goat ate half of it.",
        help: "{M} put up a fence, and the goat had to eat grass again.",
        what: "a naughty goat",
    },
    Obstacle {
        trouble: "But {his} tools were old, and one after another they broke.",
        help: "{M} opened a big box of tools and said, \"Take what you need.\"",
        what: "broken tools",
    },
    Obstacle {
        trouble: "But {he} had never done it before and did not know how.",
        help: "{M} had an old book with pictures that showed every step.",
        what: "not knowing how",
    },
    Obstacle {
        trouble: "But in the night, a storm blew everything away.",
        help: "{M} gathered all the pieces and carried them back in a wheelbarrow.",
        what: "a storm in the night",
    },
    Obstacle {
        trouble: "But it was far too much work for one.",
        help: "{M} called all the neighbors, and many hands made it light.",
        what: "too much work",
    },
    Obstacle {
        trouble: "But {he} mixed up the numbers, and it came out crooked.",
        help: "{M} measured everything twice and wrote the right numbers on the wall.",
        what: "the wrong numbers",
    },
    Obstacle {
        trouble: "But the neighbors complained about the noise.",
        help: "{M} invited the neighbors for {food}, and in the end they all came to help.",
        what: "the neighbors",
    },
    Obstacle {
        trouble: "But {n} spilled a bucket of water over everything.",
        help: "{M} hung it all in the sun, and by noon it was dry.",
        what: "a bucket of water",
    },
];

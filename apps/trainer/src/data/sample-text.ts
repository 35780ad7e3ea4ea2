import { createHash } from "node:crypto";
import { seededRandom } from "@heddle/base/random";
import type { TrainingData } from "./data-files.ts";

/** The text that a language model is trained on where the job has no data. */
const SAMPLE_BYTES = 256 * 1024;
const SEED = 20_261_122;
/** Its path in a job's lineage. */
const SAMPLE_PATH = "built-in:sample-text";

const PEOPLE = ["Ada", "Basil", "Clara", "Dario", "Edith", "Farid", "Greta", "Hugo"] as const;
const PLACES = ["mill", "market", "harbour", "garden", "library", "station"] as const;
const THINGS = ["bread", "wool", "apples", "candles", "paper", "rope"] as const;
const COLOURS = ["red", "blue", "green", "white", "grey"] as const;

/**
 * Short stories from a small grammar with dependencies: who went where, what was bought, and how
 * much is left. The same bytes on every machine.
 */
export function sampleData(): TrainingData {
  const bytes = Buffer.from(sampleText().slice(0, SAMPLE_BYTES), "latin1");
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const file = { path: SAMPLE_PATH, bytes: bytes.length, sha256 };
  return {
    files: [{ path: SAMPLE_PATH, bytes }],
    digest: { sha256, bytes: bytes.length, files: [file] },
  };
}

function sampleText(): string {
  const random = seededRandom(SEED);
  const below = (count: number) => Math.floor(random() * count);
  const pick = <Word>(words: readonly Word[]) => words[below(words.length)] as Word;
  let text = "";
  while (text.length < SAMPLE_BYTES) {
    const [person, place, thing, colour] = [
      pick(PEOPLE),
      pick(PLACES),
      pick(THINGS),
      pick(COLOURS),
    ];
    const had = 10 + below(80);
    const spent = 1 + below(9);
    text += `${person} went to the ${place} with ${had} coins. `;
    text += `At the ${place} ${person} bought ${thing} for ${spent} coins `;
    text += `and put the ${thing} into a ${colour} bag. `;
    text += `Now ${person} has ${had - spent} coins and a ${colour} bag of ${thing}.\n`;
  }
  return text;
}

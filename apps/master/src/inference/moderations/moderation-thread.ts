import { parentPort } from "node:worker_threads";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { toAppError } from "@heddle/base/errors";
import { LogisticHeads } from "./logistic-heads.ts";
import { MODERATION_HEADS } from "./moderation-heads.ts";
import { piecesOf, TextFeatures } from "./text-features.ts";

/** The model's library has no answer for a text without any, and no error. */
const VISIBLE = /[^\s\p{C}]/u;

/** Texts to score. */
export interface ModerationOrder {
  readonly id: number;
  readonly texts: readonly string[];
}

/** The scores of each text by category, or why there are none. */
export type ModerationResult =
  | { readonly id: number; readonly scores: number[][] }
  | { readonly id: number; readonly failure: string };

/** What the thread says: a result, or after each piece of a text that it works. */
export type ModerationNews = ModerationResult | "alive";

/** The thread in which moderation-local runs: a sentence takes some ten milliseconds. */
function serve(): void {
  if (parentPort === null) throw new Error("moderation-thread runs as a worker thread only");
  const port = parentPort;
  const heads = new LogisticHeads(MODERATION_HEADS);
  const opening = TextFeatures.open();
  opening.catch(() => undefined);
  const queue = new SerialQueue();
  port.on("message", (order: ModerationOrder) => {
    void queue.run(async () => port.postMessage(await result(order, await settled())));
  });
  const settled = () => opening.catch((error: unknown) => toAppError(error).message);
  const result = async (
    { id, texts }: ModerationOrder,
    features: TextFeatures | string,
  ): Promise<ModerationResult> => {
    if (typeof features === "string") return { id, failure: features };
    try {
      const scores: number[][] = [];
      for (const text of texts) {
        scores.push(await highest(heads, features, text, () => port.postMessage("alive")));
      }
      return { id, scores };
    } catch (error) {
      return { id, failure: `moderation-local failed: ${toAppError(error).message}` };
    }
  };
}

/** A text has the highest score of its pieces. */
async function highest(
  heads: LogisticHeads,
  features: TextFeatures,
  text: string,
  onPiece: () => void,
): Promise<number[]> {
  let best = MODERATION_HEADS.categories.map(() => 0);
  for (const piece of piecesOf(text)) {
    if (!VISIBLE.test(piece)) continue;
    const scores = heads.scores(await features.of(piece));
    best = scores.map((score, i) => Math.max(score, best[i] ?? 0));
    onPiece();
  }
  return best;
}

serve();

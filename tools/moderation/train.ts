import { writeFileSync } from "node:fs";
import { MODERATION_CATEGORIES } from "@heddle/contracts/api/inference/moderations";
import { TextFeatures } from "../../apps/master/src/inference/moderations/text-features.ts";
import { aucOf, readSeed, writeTable } from "./auc.ts";

// Trains the heads of moderation-local on seed.txt, and writes them and their held-out AUC.

const FOLDS = 5;
const ROUNDS = 400;
const RATE = 4;
const DECAY = 0.0005;
const HEADS = "apps/master/src/inference/moderations/moderation-heads.ts";

interface Sample {
  readonly labels: readonly string[];
  readonly features: readonly number[];
}

interface Head {
  readonly weights: number[];
  bias: number;
}

/** Logistic regression by gradient descent; both classes weigh the same. */
function train(samples: readonly Sample[], category: string): Head {
  const size = samples[0]?.features.length ?? 0;
  const head: Head = { weights: new Array<number>(size).fill(0), bias: 0 };
  const positives = samples.filter(({ labels }) => labels.includes(category)).length;
  const share = { yes: 0.5 / positives, no: 0.5 / (samples.length - positives) };
  for (let round = 0; round < ROUNDS; round++) {
    const gradient = new Array<number>(size).fill(0);
    let slope = 0;
    for (const { labels, features } of samples) {
      const is = labels.includes(category);
      const error = (scoreOf(head, features) - (is ? 1 : 0)) * (is ? share.yes : share.no);
      slope += error;
      features.forEach((feature, i) => {
        gradient[i] = (gradient[i] ?? 0) + error * feature;
      });
    }
    head.bias -= RATE * slope;
    gradient.forEach((value, i) => {
      const weight = head.weights[i] ?? 0;
      head.weights[i] = weight - RATE * (value + DECAY * weight);
    });
  }
  return head;
}

function scoreOf({ weights, bias }: Head, features: readonly number[]): number {
  const sum = features.reduce((total, feature, i) => total + feature * (weights[i] ?? 0), bias);
  return 1 / (1 + Math.exp(-sum));
}

/** Each sample is scored by heads that have not seen it; folds take turns through the file. */
function heldOutAuc(samples: readonly Sample[], category: string): number {
  const scored = Array.from({ length: FOLDS }, (_, fold) => {
    const head = train(
      samples.filter((_sample, i) => i % FOLDS !== fold),
      category,
    );
    return samples
      .filter((_sample, i) => i % FOLDS === fold)
      .map(({ labels, features }) => ({
        is: labels.includes(category),
        score: scoreOf(head, features),
      }));
  });
  return aucOf(scored.flat());
}

async function readSamples(): Promise<Sample[]> {
  const features = await TextFeatures.open();
  const samples: Sample[] = [];
  for (const { labels, text } of readSeed()) {
    samples.push({ labels, features: await features.of(text) });
  }
  return samples;
}

function packed(heads: readonly Head[]): string {
  const scales = heads.map(({ weights }) => Math.max(...weights.map(Math.abs)) / 127);
  const bytes = heads.flatMap(({ weights }, i) =>
    weights.map((weight) => Math.round(weight / (scales[i] ?? 1))),
  );
  const weights = Buffer.from(Int8Array.from(bytes).buffer).toString("base64");
  const value = {
    categories: MODERATION_CATEGORIES,
    weights,
    scales: scales.map((scale) => Number(scale.toPrecision(6))),
    biases: heads.map(({ bias }) => Number(bias.toPrecision(6))),
  };
  return `import type { PackedHeads } from "./logistic-heads.ts";

/** Written by tools/moderation/train.ts of tools/moderation/seed.txt. */
export const MODERATION_HEADS: PackedHeads = ${JSON.stringify(value)};
`;
}

const samples = await readSamples();
const rows = MODERATION_CATEGORIES.map((category) => {
  const count = samples.filter(({ labels }) => labels.includes(category)).length;
  const auc = heldOutAuc(samples, category).toFixed(3);
  return `| ${category} | ${count} | ${auc} |`;
});
const heads = MODERATION_CATEGORIES.map((category) => train(samples, category));
writeFileSync(HEADS, packed(heads));
process.stdout.write(`${samples.length} samples\n`);
writeTable("moderation", "| Category | Positives | AUC |", rows);

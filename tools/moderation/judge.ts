import { Heddle } from "@heddle/client/heddle";
import { MODERATION_CATEGORIES } from "@heddle/contracts/api/inference/moderations";
import { aucOf, readSeed, writeTable } from "./auc.ts";

// Measures moderation-judge with a served model on texts of seed.txt, and writes its AUC.

/** Every third text of each category is measured. */
const STEP = 3;

const [endpoint, model] = process.argv.slice(2);
const apiKey = process.env["HEDDLE_API_KEY"];
if (!endpoint || !model || !apiKey) {
  throw new Error(
    "Usage: HEDDLE_API_KEY=... npm run moderation:judge -- http://127.0.0.1:8080 MODEL",
  );
}
const heddle = new Heddle({ endpoint, auth_token: apiKey, timeout: 300_000 });
const texts = readSeed().filter((_text, i) => i % STEP === 0);
const scored: { readonly labels: readonly string[]; readonly scores: Record<string, number> }[] =
  [];
for (const { labels, text } of texts) {
  const { results } = await heddle.moderations.create({
    model: `moderation-judge:${model}`,
    input: text,
  });
  scored.push({ labels, scores: results[0]?.category_scores ?? {} });
  process.stderr.write(`\r${scored.length} of ${texts.length}`);
}
process.stderr.write("\n");
const rows = MODERATION_CATEGORIES.map((category) => {
  const marked = scored.map(({ labels, scores }) => {
    return { is: labels.includes(category), score: scores[category] ?? 0 };
  });
  const count = marked.filter(({ is }) => is).length;
  return `| ${category} | ${count} | ${aucOf(marked).toFixed(3)} |`;
});
writeTable("moderation-judge", "| Category | Positives | AUC |", rows);

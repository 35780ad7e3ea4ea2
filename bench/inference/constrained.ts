import { sampleProcess } from "../support/proc-files.ts";
import { median } from "../support/statistics.ts";
import { formatNumber, printTable, type Verdict } from "../support/table.ts";
import type { InferenceServer } from "./servers.ts";
import { decode } from "./workloads.ts";

/** Longer than any answer here, so that free and constrained ones have equally many tokens. */
const SCHEMA = {
  type: "array",
  minItems: 40,
  items: {
    type: "object",
    properties: {
      name: { type: "string" },
      age: { type: "integer", minimum: 0, maximum: 120 },
      role: { enum: ["admin", "editor", "viewer"] },
      tags: { type: "array", items: { type: "string", maxLength: 16 }, maxItems: 4 },
      score: { type: "number" },
      active: { type: "boolean" },
    },
    required: ["name", "age", "role", "tags", "score", "active"],
    additionalProperties: false,
  },
};

interface ConstrainedPlan {
  readonly rounds: number;
  readonly concurrencies: readonly number[];
  readonly maxTokens: number;
  readonly bannedTokens: readonly number[];
}

/** One turn of a server: free answers and answers of the schema, directly after each other. */
interface ConstrainedTurn {
  readonly server: string;
  readonly concurrency: number;
  readonly free: TurnCost;
  readonly schema: TurnCost;
}

interface TurnCost {
  readonly tokensPerSecond: number;
  /** The processor time of all processes of the server. */
  readonly cpuMsPerToken: number;
}

/** Decoding by a schema against free decoding, on each server in turn. */
export async function measureConstrained(
  servers: readonly InferenceServer[],
  plan: ConstrainedPlan,
): Promise<readonly ConstrainedTurn[]> {
  const turns: ConstrainedTurn[] = [];
  for (let round = 0; round <= plan.rounds; round += 1) {
    for (const concurrency of plan.concurrencies) {
      const order = round % 2 === 0 ? servers : servers.toReversed();
      for (const server of order) {
        // Prompts of their own, so that neither kind finds the other's in the cache.
        const seed = round * 1_000 + concurrency;
        const turn = (more: number, schema?: object) =>
          costOf(server, plan, { seed: seed + more, concurrency, schema });
        const schemaFirst = round % 2 === 0 ? await turn(500, SCHEMA) : undefined;
        const free = await turn(0);
        const schema = schemaFirst ?? (await turn(500, SCHEMA));
        const result = { server: server.name, concurrency, free, schema };
        // The first round compiles the grammar and warms the code up.
        if (round > 0) turns.push(result);
      }
    }
    console.log(`round ${round} of ${plan.rounds} done`);
  }
  return turns;
}

async function costOf(
  server: InferenceServer,
  { maxTokens, bannedTokens }: ConstrainedPlan,
  {
    seed,
    concurrency,
    schema,
  }: { readonly seed: number; readonly concurrency: number; readonly schema?: object | undefined },
): Promise<TurnCost> {
  const before = cpuMs(server);
  const result = await decode(server, { seed, bannedTokens, schema }, concurrency, maxTokens);
  const { tokensPerSecond, completionTokens } = result;
  return { tokensPerSecond, cpuMsPerToken: (cpuMs(server) - before) / completionTokens };
}

function cpuMs(server: InferenceServer): number {
  return server.processes().reduce((sum, { pid }) => sum + (sampleProcess(pid)?.cpuMs ?? 0), 0);
}

/** Prints the medians, and judges ours against its own free decoding and against the peer. */
export function printConstrained(
  ours: string,
  peer: string | undefined,
  turns: readonly ConstrainedTurn[],
): readonly Verdict[] {
  const concurrencies = [...new Set(turns.map(({ concurrency }) => concurrency))];
  const of = (server: string, concurrency: number) =>
    turns.filter((turn) => turn.server === server && turn.concurrency === concurrency);
  const shares = (server: string, concurrency: number, figure: keyof TurnCost) =>
    median(of(server, concurrency).map(({ free, schema }) => schema[figure] / free[figure]));
  const names = [ours, ...(peer === undefined ? [] : [peer])];
  printTable(
    "JSON by a schema and free text: medians of the turns, ratios of equal turns",
    [
      "server",
      "streams",
      "free, tokens/s",
      "schema",
      "ratio",
      "free, CPU ms a token",
      "schema",
      "ratio",
    ],
    names.flatMap((name) =>
      concurrencies.map((concurrency) => {
        const all = of(name, concurrency);
        const value = (kind: "free" | "schema", figure: keyof TurnCost) =>
          median(all.map((turn) => turn[kind][figure]));
        return [
          name,
          `${concurrency}`,
          value("free", "tokensPerSecond"),
          value("schema", "tokensPerSecond"),
          `${formatNumber(shares(name, concurrency, "tokensPerSecond"))}x`,
          value("free", "cpuMsPerToken"),
          value("schema", "cpuMsPerToken"),
          `${formatNumber(shares(name, concurrency, "cpuMsPerToken"))}x`,
        ];
      }),
    ),
  );
  return concurrencies.flatMap((concurrency) => {
    const cost = shares(ours, concurrency, "cpuMsPerToken");
    const own = {
      bar: `a schema costs <= 15 % of a token's CPU time at c=${concurrency}`,
      measured: `${formatNumber((cost - 1) * 100)} %`,
      pass: cost <= 1.15,
    };
    if (peer === undefined) return [own];
    return [
      own,
      ...(["tokensPerSecond", "cpuMsPerToken"] as const).map((figure) => {
        const theirs = of(peer, concurrency);
        const ratio = median(
          of(ours, concurrency).map(
            ({ schema }, i) => schema[figure] / (theirs[i]?.schema[figure] ?? 0),
          ),
        );
        const isRate = figure === "tokensPerSecond";
        const what = isRate ? "tokens/s by a schema >= 1.0x" : "CPU a token by a schema <= 1.0x";
        const pass = isRate ? ratio >= 1 : ratio <= 1;
        return {
          bar: `${what} of the peer's at c=${concurrency}`,
          measured: `${formatNumber(ratio)}x`,
          pass,
        };
      }),
    ];
  });
}

import type { PastCollection } from "@heddle/contracts/api/history/state";
import type { Command } from "commander";
import { commandContext } from "../../command-context.ts";
import { wholeNumberOf } from "../../number-flags.ts";
import { printRecord } from "../../output/rows.ts";

interface StateFlags {
  readonly at: string;
  readonly collection?: string;
  readonly limit?: string;
  readonly after?: string;
}

/** `heddle cluster state --at <position>`. */
export async function showPastState(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const { at, collection, limit, after } = command.opts<StateFlags>();
  const state = await heddle.cluster.state({
    at: wholeNumberOf("--at", at),
    // The master names those that there are.
    collection: collection as PastCollection | undefined,
    limit: limit === undefined ? undefined : wholeNumberOf("--limit", limit),
    after,
  });
  const shown = format === "yaml" ? "yaml" : "json";
  printRecord(state, String(state.at), shown, data);
  return 0;
}

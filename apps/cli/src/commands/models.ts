import { AppError } from "@heddle/base/errors";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { type JsonFields, listOf, numberOf, recordsOf, textOf } from "../http/json-fields.ts";
import { watchInterrupts } from "../interrupt.ts";
import { printRows } from "../output/rows.ts";
import { awaitModel } from "../up/await-model.ts";

/** `heddle models list`. */
export async function listModelsCommand(command: Command): Promise<number> {
  const { client, data, format } = commandContext(command);
  const models = listOf(await client.json("/api/v1/models"));
  printRows(
    models,
    [
      { header: "ID", value: (model) => textOf(model["id"]) },
      { header: "STATUS", value: (model) => textOf(model["status"]) },
      { header: "CONTEXT", value: (model) => String(numberOf(model["context_window"]) ?? "") },
      { header: "BACKING", value: backing },
      { header: "FAMILY", value: (model) => textOf(model["family"]), wide: true },
      { header: "REPLICAS", value: replicas, wide: true },
    ],
    format,
    data,
  );
  return 0;
}

function backing(model: JsonFields): string {
  return textOf(model["backing"]) + (model["stand_in"] === true ? " (a stand-in)" : "");
}

function replicas(model: JsonFields): string {
  return recordsOf(model["replicas"])
    .map((replica) => {
      const total = numberOf(replica["total_bytes"]) ?? 0;
      const pulled = numberOf(replica["pulled_bytes"]) ?? 0;
      const share = replica["phase"] === "pulling" && total > 0 ? ` ${percent(pulled, total)}` : "";
      return `${textOf(replica["node"])}:${textOf(replica["phase"])}${share}`;
    })
    .join(" ");
}

function percent(part: number, whole: number): string {
  return `${Math.floor((part / whole) * 100)}%`;
}

/** `heddle models pull <id>`: shows the pull until the model can answer. */
export async function pullModel(command: Command): Promise<number> {
  const { client, data, messages } = commandContext(command);
  const id = command.args[0] ?? "";
  const interrupts = watchInterrupts();
  try {
    const { signal } = interrupts;
    const known = listOf(await client.json("/api/v1/models", { signal }));
    if (!known.some((model) => model["id"] === id)) {
      throw new AppError("model_not_found", `There is no model "${id}" at ${client.endpoint}.`);
    }
    const awaited = await awaitModel({ client, messages, model: id, signal });
    if (awaited.outcome === "failed") {
      throw new AppError(
        "unavailable",
        `The weights of ${id} could not be had: ${awaited.reason}.`,
      );
    }
    data.write(`${id} is ready\n`);
    return 0;
  } finally {
    interrupts.release();
  }
}

import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { type JsonFields, listOf, numberOf, recordsOf, textOf } from "../http/json-fields.ts";
import { printRows } from "../output/rows.ts";

/** `heddle workers list`. */
export async function listWorkers(command: Command): Promise<number> {
  const { client, data, format } = commandContext(command);
  const workers = listOf(await client.json("/api/v1/workers"));
  printRows(
    workers,
    [
      { header: "ID", value: (worker) => textOf(worker["id"]) },
      { header: "NAME", value: (worker) => textOf(worker["name"]) },
      { header: "STATUS", value: (worker) => textOf(worker["status"]) },
      { header: "KIND", value: (worker) => textOf(worker["kind"]) },
      { header: "GPUS", value: gpus },
      { header: "CPU", value: (worker) => percent(worker["cpu_percent"]) },
      { header: "MODELS", value: models },
      { header: "ADDRESS", value: (worker) => textOf(worker["address"]), wide: true },
      { header: "VERSION", value: (worker) => textOf(worker["version"]), wide: true },
    ],
    format,
    data,
  );
  return 0;
}

/** Devices that do not exist are said to be so, and sick ones are counted. */
function gpus(worker: JsonFields): string {
  const devices = recordsOf(worker["gpus"]);
  const sick = devices.filter((gpu) => textOf(gpu["fault"]) !== "").length;
  return [
    String(devices.length),
    ...(devices.length > 0 ? [textOf(devices[0]?.["name"])] : []),
    ...(devices.some((gpu) => gpu["simulated"] === true) ? ["(simulated)"] : []),
    ...(sick > 0 ? [`${sick} sick`] : []),
  ].join(" ");
}

function percent(value: unknown): string {
  const number = numberOf(value);
  return number === undefined ? "" : `${Math.round(number)} %`;
}

function models(worker: JsonFields): string {
  return recordsOf(worker["replicas"])
    .map((replica) => `${textOf(replica["deployment"])}:${textOf(replica["phase"])}`)
    .join(" ");
}

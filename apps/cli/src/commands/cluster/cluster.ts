import type { Command } from "commander";
import { commandContext } from "../../command-context.ts";
import { fieldsOf, type JsonFields, numberOf, recordsOf, textOf } from "../../http/json-fields.ts";
import { type Column, printChange, printRow, printRows } from "../../output/rows.ts";

const STATUS: readonly Column<JsonFields>[] = [
  { header: "LEADER", value: (status) => textOf(status["leader"]) || "none" },
  { header: "HEALTH", value: (status) => textOf(status["health"]) },
  { header: "QUORUM", value: quorum },
  { header: "TERM", value: (status) => figure(status["term"]) },
  { header: "COMMIT", value: (status) => figure(status["commit"]) },
  { header: "APPLIED", value: (status) => figure(status["applied"]) },
  { header: "SNAPSHOT", value: (status) => figure(status["snapshot_index"]), wide: true },
  { header: "STATE", value: (status) => textOf(status["state_hash"]) },
  { header: "VERSION", value: clusterVersion },
  { header: "CLUSTER", value: (status) => textOf(status["cluster"]), wide: true },
  { header: "ANSWERED BY", value: (status) => textOf(status["answered_by"]) },
];

const MEMBERS: readonly Column<JsonFields>[] = [
  { header: "NAME", value: (master) => textOf(master["id"]) },
  { header: "MEMBER", value: (master) => figure(master["member"]) },
  { header: "ROLE", value: (master) => textOf(master["role"]) },
  { header: "CONNECTED", value: (master) => (master["connected"] === true ? "yes" : "no") },
  { header: "LAG", value: (master) => figure(master["lag"]) },
  { header: "ADDRESS", value: (master) => textOf(master["address"]) },
];

/** `heddle cluster status`. */
export async function clusterStatus(command: Command): Promise<number> {
  const { heddle, data, format, messages } = commandContext(command);
  const status = fieldsOf(await heddle.cluster.status());
  printRow(status, STATUS, format, data);
  if (status["may_be_stale"] === true) {
    const why = textOf(status["leader"])
      ? `${textOf(status["answered_by"])} does not catch up with the leader`
      : "there is no leader: changes are refused";
    messages.write(`${why}; this may be out of date\n`);
  }
  return 0;
}

/** `heddle cluster members`. */
export async function clusterMembers(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const status = fieldsOf(await heddle.cluster.status());
  printRows(recordsOf(status["masters"]), MEMBERS, format, data);
  return 0;
}

/** `heddle cluster transfer [master]`. */
export async function transferLeadershipCommand(command: Command): Promise<number> {
  const context = commandContext(command);
  const [to] = command.args;
  const status = await context.heddle.cluster.transfer(to);
  const sentence = "the leader was asked to hand over; heddle cluster status shows the leader";
  printChange({ record: status, name: textOf(fieldsOf(status)["leader"]), sentence }, context);
  return 0;
}

/** `heddle cluster snapshot`. */
export async function takeSnapshot(command: Command): Promise<number> {
  const context = commandContext(command);
  const status = fieldsOf(await context.heddle.cluster.snapshot());
  const name = textOf(status["answered_by"]);
  const sentence = `${name} has a snapshot of entry ${figure(status["snapshot_index"])}`;
  printChange({ record: status, name, sentence }, context);
  return 0;
}

/** `heddle cluster remove <master>`. */
export async function removeMaster(command: Command): Promise<number> {
  const context = commandContext(command);
  const name = command.args[0] ?? "";
  const { force } = command.opts<{ force?: boolean }>();
  const status = await context.heddle.cluster.removeMaster(name, { force });
  const sentence = `${name} is out of the group; its process ends by itself`;
  printChange({ record: status, name, sentence }, context);
  return 0;
}

/** Reachable voters, all voters, and how many a change needs. */
function quorum(status: JsonFields): string {
  const { reachable, voters, required } = fieldsOf(status["quorum"]);
  if (voters === undefined) return "";
  return `${figure(reachable)}/${figure(voters)} (needs ${figure(required)})`;
}

/** The answering master's highest supported version is shown until it is reached. */
function clusterVersion(status: JsonFields): string {
  const version = figure(status["cluster_version"]);
  const supported = figure(status["supported_cluster_version"]);
  return version === supported ? version : `${version} (supports ${supported})`;
}

function figure(value: unknown): string {
  const number = numberOf(value);
  return number === undefined ? "" : String(number);
}

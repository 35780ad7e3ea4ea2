import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import { checkMemberAddress, checkMemberName } from "@heddle/base/network/member-address";
import { isLoopback, splitHostPort } from "@heddle/base/network/network-address";
import type { IssuedJoinToken, JoinTokenSpec } from "@heddle/contracts/api/cluster";
import type { Command } from "commander";
import { commandContext } from "../../command-context.ts";
import { fieldsOf, recordsOf, textOf } from "../../http/json-fields.ts";
import { isRecordFormat, printRecord } from "../../output/rows.ts";

interface AddFlags {
  readonly address: string;
  readonly data: string;
  readonly clusterTokenFile: string;
  readonly secretsKeyFile: string;
  readonly joinTokenFile: string;
  readonly insecureNodes?: boolean;
}

/** `heddle cluster add <master>`: prints the command line of a joining master. */
export async function addMaster(command: Command): Promise<number> {
  const { heddle, data, messages, format } = commandContext(command);
  const [name = ""] = command.args;
  const { address, data: directory, ...files } = command.opts<AddFlags>();
  const { clusterTokenFile, secretsKeyFile, insecureNodes = false } = files;
  checkMemberName(name);
  checkMemberAddress(address);
  const status = fieldsOf(await heddle.cluster.status());
  const masters = recordsOf(status["masters"]);
  const namesake = masters.find((master) => master["id"] === name);
  if (namesake && namesake["connected"] !== false) {
    const message = `The master ${name} is a running member of the cluster. Stop it to replace its data, or remove it: heddle cluster remove ${name}`;
    throw new AppError("conflict", message);
  }
  const others = masters.filter((master) => master !== namesake);
  const known = others.map((master) => `${textOf(master["id"])}=${textOf(master["address"])}`);
  const peers = [...known, `${name}=${address}`].join(",");
  const [host, port] = splitHostPort(address);
  const token = await heddle.cluster.createJoinToken({ role: "master", name });
  const isExposed = token.tls === false && !isLoopback(host);
  if (isExposed) messages.write(insecureWarning(address, insecureNodes));
  const proof = token.tls === false ? ["--cluster-token-file", clusterTokenFile] : ["--tls"];
  if (isExposed) proof.unshift("--insecure-nodes");
  const isEncrypted = typeof token.secrets_key === "string";
  const flags = [
    "--name",
    name,
    "--peers",
    peers,
    "--grpc-host",
    host,
    "--grpc-port",
    port,
    ...proof,
    "--join-token-file",
    writeToken(token, command),
    ...(isEncrypted ? ["--secrets-key-file", secretsKeyFile] : []),
    "--data",
    directory,
  ];
  if (isRecordFormat(format)) {
    printRecord({ name, address, peers, flags }, name, format, data);
    return 0;
  }
  data.write(`heddle-master ${flags.join(" ")}\n`);
  messages.write(
    `Run it on the master's machine, where ${directory} is missing or empty. It joins as a learner and gets its vote when it has caught up: see\nheddle cluster members.\n`,
  );
  return 0;
}

/**
 * `heddle cluster join-token --role ROLE --name NAME`: prints the token alone on standard output.
 */
export async function createJoinToken(command: Command): Promise<number> {
  const { heddle, data, messages, format } = commandContext(command);
  const { role, name } = command.opts<Pick<JoinTokenSpec, "role" | "name">>();
  const issued = await heddle.cluster.createJoinToken({ role, name });
  printRecord(issued, issued.token, format, data);
  messages.write(`single-use token for the ${role} ${name}, valid until ${issued.expires_at}\n`);
  return 0;
}

/** Another machine joins in the clear only where that is asked for; returns the warning. */
function insecureWarning(address: string, isAsked: boolean): string {
  const text = `the masters run without TLS: who can reach ${address} can read and change what they send`;
  if (isAsked) return `warning: ${text}\n`;
  const message = `No master was added, since ${text}. Start the masters with --tls, or give --insecure-nodes.`;
  throw new AppError("invalid_value", message);
}

/** Returns the path of the file. */
function writeToken({ token }: IssuedJoinToken, command: Command): string {
  const path = resolve(command.opts<AddFlags>().joinTokenFile);
  try {
    writeFileSync(path, `${token}\n`, { mode: 0o600 });
  } catch (cause) {
    const message = `--join-token-file ${path} cannot be written: ${(cause as Error).message}. Give the path of a file, and add the master again.`;
    throw new AppError("invalid_value", message, { cause });
  }
  return path;
}

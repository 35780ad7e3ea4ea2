import { createHash } from "node:crypto";
import { basename, resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { JobArtifact } from "@heddle/contracts/api/job-operations";
import type { Command } from "commander";
import { type CommandContext, commandContext } from "../../command-context.ts";
import { wholeNumberOf } from "../../number-flags.ts";
import { printDownload, saveDownload } from "../../output/download.ts";
import { printRecord, printRows } from "../../output/rows.ts";
import { resolveJobId } from "./job-id.ts";
import { printFailure } from "./job-watch.ts";

interface ArtifactFlags {
  /** A file; `-` is standard output. */
  readonly outputFile?: string;
  readonly rank?: string;
}

/** `heddle jobs artifacts <job> [name]`: lists a job's artifacts, or downloads one. */
export async function jobArtifacts(command: Command): Promise<number> {
  const context = commandContext(command);
  const [given, name] = command.args;
  const id = await resolveJobId(context.heddle, given);
  const flags = command.opts() as ArtifactFlags;
  const artifacts = await context.heddle.jobs.artifacts(id);
  if (name === undefined) return await list(context, id, artifacts);
  const rank = flags.rank === undefined ? undefined : wholeNumberOf("--rank", flags.rank);
  const found = artifacts.find((each) => each.name === name && (rank ?? each.rank) === each.rank);
  if (!found) {
    const names = [...new Set(artifacts.map((each) => each.name))].join(", ") || "none";
    throw new AppError("not_found", `The job ${id} has no artifact ${name}; it has: ${names}.`);
  }
  const target = flags.outputFile ?? basename(name);
  const content = (signal?: AbortSignal) => bytesOf(context, id, found, signal);
  if (target === "-") {
    await printDownload(content);
    return 0;
  }
  await saveDownload(resolve(target), content);
  printRecord({ ...found, file: resolve(target) }, target, context.format, context.data);
  return 0;
}

async function list(
  { heddle, format, data, messages }: CommandContext,
  id: string,
  artifacts: readonly JobArtifact[],
): Promise<number> {
  printRows(
    artifacts,
    [
      { header: "NAME", value: ({ name }) => name },
      { header: "BYTES", value: ({ bytes }) => String(bytes) },
      { header: "RANK", value: ({ rank }) => String(rank) },
      { header: "SHA256", value: ({ sha256 }) => sha256, wide: true },
      { header: "WORKER", value: ({ node }) => node, wide: true },
    ],
    format,
    data,
  );
  if (artifacts.length > 0) return 0;
  const { state, failure } = await heddle.jobs.get(id);
  messages.write(`the job is ${state} and has no artifacts\n`);
  if (failure) printFailure(failure, messages);
  return 0;
}

/** Throws where the content has another digest. */
async function* bytesOf(
  { heddle }: CommandContext,
  id: string,
  { name, rank, sha256 }: JobArtifact,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array, void> {
  const hash = createHash("sha256");
  for await (const chunk of heddle.jobs.artifact(id, name, { rank, signal })) {
    hash.update(chunk);
    yield chunk;
  }
  checkDigest(name, hash.digest("hex"), sha256);
}

function checkDigest(name: string, found: string, expected: string): void {
  if (found === expected) return;
  const message = `${name} has the SHA-256 ${found}, not ${expected}: download it again.`;
  throw new AppError("server_error", message);
}

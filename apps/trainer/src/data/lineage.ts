import { join } from "node:path";
import { writeArtifact } from "./write-artifact.ts";

/** The origin of a job's artifacts. */
export interface Lineage {
  readonly jobId: string;
  readonly jobName: string;
  readonly attempt: number;
  readonly algorithm: string;
  /** As parsed: defaults filled in. */
  readonly config: unknown;
  /** Absent where the job makes its own data, as by environments. */
  readonly data?:
    | {
        /** SHA-256 of all files' bytes, one after the other; hexadecimal. */
        readonly sha256: string;
        readonly bytes: number;
        readonly files: readonly DataFile[];
      }
    | undefined;
  /** The tokenizer of a text; absent where there is none. */
  readonly tokenizer?:
    | {
        readonly type: string;
        /** Including those that pad the vocabulary. */
        readonly tokens: number;
        /** SHA-256 of the tokens' bytes and the merges, hexadecimal; absent where bytes are tokens. */
        readonly sha256?: string | undefined;
      }
    | undefined;
  readonly codeVersion: string;
  readonly step: number;
  readonly loss?: number | undefined;
  readonly reward?: number | undefined;
  readonly backend: string;
  readonly device: string;
}

/** A file that a job was trained on. */
export interface DataFile {
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
}

/** Writes it beside the artifacts as `lineage.json`, with the API's field names. */
export async function writeLineage(directory: string, lineage: Lineage): Promise<void> {
  const { jobId, jobName, codeVersion, ...rest } = lineage;
  const record = { job_id: jobId, job_name: jobName, code_version: codeVersion, ...rest };
  await writeArtifact(join(directory, "lineage.json"), `${JSON.stringify(record, undefined, 2)}\n`);
}

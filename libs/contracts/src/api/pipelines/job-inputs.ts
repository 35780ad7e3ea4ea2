import { z } from "zod";

/** What a job starts with: artifacts of other jobs and files of the network, and conditions on them. */

/** The label of workers whose builds bring inputs and check conditions; others would ignore both. */
export const FEATURE_LABEL = "heddle/feature-";
export const INPUTS_FEATURE = "inputs";
/** How the message of a task begins that its worker has skipped. */
export const SKIPPED = "skipped: ";
/** The most inputs of one job. */
const MAX_INPUTS = 64;
const MAX_CONDITIONS = 16;

export const inputName = z
  .string()
  .max(128)
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._-]*$/,
    "expected a file's name: letters, digits, `.`, `_` and `-`, with a letter or digit first",
  );
export const inputSource = z
  .string()
  .max(2_048)
  .regex(
    /^(https?|hf|s3):\/\/\S+$/,
    "expected https://..., s3://BUCKET/KEY or hf://OWNER/REPO/PATH",
  );
const jobIdText = z
  .string()
  .regex(/^job_[0-7][0-9A-HJKMNP-TV-Z]{25}$/, "expected the id of a job, `job_` and a ULID");

const jobInput = z
  .strictObject({
    name: inputName.describe("Its file in HEDDLE_INPUT_DIR."),
    job: jobIdText.optional().describe("The job that leaves the artifact; it must succeed first."),
    artifact: z.string().min(1).max(256).optional().describe("The artifact of the job, by name."),
    source: inputSource
      .optional()
      .describe(
        "In place of `job`: https://, s3:// or hf:// of a host or bucket that the workers allow.",
      ),
    sha256: z
      .string()
      .regex(/^[0-9a-f]{64}$/, "expected 64 lower-case hexadecimal digits")
      .optional()
      .describe("Of a `source`: the digest that the file must have."),
  })
  .refine(({ job, source }) => (job === undefined) !== (source === undefined), {
    path: ["job"],
    message: "expected either `job` and `artifact`, or `source` and `sha256`",
  })
  .refine(({ job, artifact }) => (job === undefined) === (artifact === undefined), {
    path: ["artifact"],
    message: "it is given with `job`, and only then",
  })
  .refine(({ source, sha256 }) => (source === undefined) === (sha256 === undefined), {
    path: ["sha256"],
    message: "it is given with `source`, and only then",
  });

const jobCondition = z.strictObject({
  input: inputName.describe("The input that is read."),
  field: z.string().min(1).max(128).optional().describe("Of its JSON object; absent: its text."),
  at_least: z.number().optional(),
  at_most: z.number().optional(),
  equals: z.union([z.string().max(256), z.number(), z.boolean()]).optional(),
});

export type JobInput = z.output<typeof jobInput>;
export type JobCondition = z.output<typeof jobCondition>;

export const jobInputs = z
  .array(jobInput)
  .max(MAX_INPUTS)
  .refine((given) => new Set(given.map(({ name }) => name)).size === given.length, {
    message: "expected each name once",
  });
export const jobConditions = z.array(jobCondition).max(MAX_CONDITIONS);

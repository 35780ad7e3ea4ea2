import { z } from "zod";
import { type ApiOperation, type DataOf, json, type QueryOf } from "../operation.ts";
import { integerParameter } from "../parameters.ts";

const FILE_PURPOSES = ["batch", "user_data", "assistants", "vision", "fine-tune", "evals"] as const;

const MIN_EXPIRY_S = 3_600;
const MAX_EXPIRY_S = 30 * 86_400;
const MAX_FILENAME_CHARS = 255;
const MAX_PAGE_FILES = 10_000;
const DEFAULT_PAGE_FILES = 1_000;

/** How long after its creation a file is deleted. */
export const expiresAfter = z.object({
  anchor: z.literal("created_at"),
  seconds: z.int().min(MIN_EXPIRY_S).max(MAX_EXPIRY_S),
});

const file = z
  .object({
    id: z.string(),
    object: z.literal("file"),
    bytes: z.int(),
    created_at: z.int().describe("Seconds since the epoch."),
    expires_at: z.int().nullable().describe("Null for a file that stays until it is deleted."),
    filename: z.string(),
    purpose: z.enum([...FILE_PURPOSES, "batch_output"]),
    status: z.literal("processed"),
  })
  .meta({ id: "File", description: "A file that the masters keep." });

export type ApiFile = DataOf<typeof file>;

/** The fields of the form beside `file`; those in brackets are OpenAI's. */
export const fileForm = z.object({
  purpose: z.enum(FILE_PURPOSES, `expected one of ${FILE_PURPOSES.join(", ")}`),
  filename: z.string().min(1).max(MAX_FILENAME_CHARS),
  expires_after: expiresAfter.optional(),
});

const createFileRequest = z
  .object({
    file: z.string().meta({ format: "binary" }).describe("Its content, under its name."),
    purpose: fileForm.shape.purpose,
    "expires_after[anchor]": z.literal("created_at").optional(),
    "expires_after[seconds]": z.string().optional().describe("From 3,600 to 2,592,000."),
  })
  .meta({ id: "CreateFileRequest" });

const filesQuery = z.object({
  limit: integerParameter(1, MAX_PAGE_FILES)
    .default(DEFAULT_PAGE_FILES)
    .describe("Maximum number of files."),
  order: z.enum(["asc", "desc"]).default("desc").describe("By age; the newest first if absent."),
  after: z.string("expected one value").max(128).optional().describe("The file before the page."),
  purpose: file.shape.purpose.optional().describe("Only files of that purpose."),
});

export type FilesQuery = QueryOf<{ readonly query: typeof filesQuery }>;

const filePage = z.object({
  object: z.literal("list"),
  data: z.array(file),
  first_id: z.string().nullable(),
  last_id: z.string().nullable(),
  has_more: z.boolean(),
});

const PATH = "/api/v1/files";

export const fileOperations = {
  create: {
    operationId: "createFile",
    method: "POST",
    path: PATH,
    permission: "files:write",
    summary: "Stores a file, as a form; its size is bounded by the setting `file_mib`.",
    form: createFileRequest,
    replies: { 200: json(file) },
  },
  list: {
    operationId: "listFiles",
    method: "GET",
    path: PATH,
    permission: "files:read",
    summary: "Lists the files of the key.",
    query: filesQuery,
    replies: { 200: json(filePage) },
  },
  retrieve: {
    operationId: "retrieveFile",
    method: "GET",
    path: `${PATH}/{id}`,
    permission: "files:read",
    summary: "Returns a file without its content.",
    replies: { 200: json(file) },
  },
  content: {
    operationId: "downloadFile",
    method: "GET",
    path: `${PATH}/{id}/content`,
    permission: "files:read",
    summary: "Returns a file's content, or the part of it that `Range` names.",
    headers: ["Range"],
    replies: {
      200: { "application/octet-stream": "The content." },
      206: { "application/octet-stream": "The requested range of the content." },
      416: {},
    },
  },
  delete: {
    operationId: "deleteFile",
    method: "DELETE",
    path: `${PATH}/{id}`,
    permission: "files:write",
    summary: "Deletes a file.",
    replies: {
      200: json(z.object({ id: z.string(), object: z.literal("file"), deleted: z.literal(true) })),
    },
  },
} as const satisfies Record<string, ApiOperation>;

export type FilePage = DataOf<typeof filePage>;

import { AppError } from "@heddle/base/errors";
import { z } from "zod";

/** The longest schema as JSON, in characters. */
const MAX_SCHEMA_CHARS = 256 * 1024;
export const schemaName = z
  .string()
  .regex(/^[a-zA-Z0-9_-]{1,64}$/, "1 to 64 letters, digits, _ and -");
export const responseFormat = z.looseObject({
  type: z.string(),
  json_schema: z
    .looseObject({
      name: schemaName,
      description: z.string().nullish(),
      schema: z.looseObject({}).nullish().describe("A JSON schema; without it any object."),
      strict: z.boolean().nullish(),
    })
    .optional(),
  schema: z
    .looseObject({})
    .nullish()
    .describe("Of `json_object`, as llama-server takes it: a JSON schema of the object."),
});
const functionName = z
  .string()
  .regex(/^[a-zA-Z0-9_-]{1,64}$/, "names have 1 to 64 letters, digits, _ and -");
/** Names of functions of responses and messages. */
export const longFunctionName = z
  .string()
  .regex(/^[a-zA-Z0-9_-]{1,128}$/, "names have 1 to 128 letters, digits, _ and -");
/** Who may call a tool. */
export const directCallers = z
  .array(z.literal("direct", "tools are called by the model alone"))
  .nullish();
export const MAX_TOOLS = 128;
export const tool = z.looseObject({
  type: z.literal("function", "only function tools are supported"),
  function: z.looseObject({
    name: functionName,
    description: z.string().nullish(),
    parameters: z.looseObject({}).nullish().describe("A JSON schema; without it no arguments."),
    strict: z.boolean().nullish().describe("Arguments are valid for the schema in any case."),
  }),
});
const namedTool = z.looseObject({
  type: z.literal("function"),
  function: z.looseObject({ name: functionName }),
});
export const toolChoice = z.union([
  z.enum(["none", "auto", "required"]),
  namedTool,
  z.looseObject({
    type: z.literal("allowed_tools"),
    allowed_tools: z.looseObject({
      mode: z.enum(["auto", "required"]),
      tools: z.array(namedTool).min(1).max(MAX_TOOLS),
    }),
  }),
]);

/** What a request says of tools. */
interface ToolRequest {
  readonly tools?: readonly z.infer<typeof tool>[] | null | undefined;
  readonly tool_choice?: z.infer<typeof toolChoice> | null | undefined;
}

/** Throws where names or schemas of tools cannot be. */
export function checkTools({ tools, tool_choice }: ToolRequest): void {
  const names = new Set<string>();
  tools?.forEach(({ function: { name, parameters } }, at) => {
    if (names.has(name)) throw invalid(`tools[${at}].function.name`, `${name} is there twice`);
    names.add(name);
    checkSchemaSize(`tools[${at}].function.parameters`, parameters);
  });
  const chosen = chosenTools(tool_choice);
  for (const { param, name } of chosen) {
    if (!names.has(name)) throw invalid(param, `no tool has the name ${name}`);
  }
  if (tool_choice === "required" && names.size === 0) {
    throw invalid("tool_choice", "there are no tools to call");
  }
}

/** The tools that a choice names, and where. */
function chosenTools(choice: ToolRequest["tool_choice"]) {
  if (choice == null || typeof choice === "string") return [];
  if ("allowed_tools" in choice) {
    const { tools } = choice.allowed_tools as { tools: z.infer<typeof namedTool>[] };
    return tools.map(({ function: { name } }, at) => ({
      param: `tool_choice.allowed_tools.tools[${at}].function.name`,
      name,
    }));
  }
  const { name } = choice.function as { name: string };
  return [{ param: "tool_choice.function.name", name }];
}

/** Throws where the format lacks what it needs. */
export function checkFormat({ type, json_schema, schema }: z.infer<typeof responseFormat>): void {
  if (type !== "text" && type !== "json_object" && type !== "json_schema") {
    throw invalid("response_format.type", "expected `text`, `json_object` or `json_schema`");
  }
  if (type === "json_object") checkSchemaSize("response_format.schema", schema);
  if (type !== "json_schema") return;
  if (json_schema === undefined) {
    const param = "response_format.json_schema";
    const text = `Missing required parameter: '${param}': the type json_schema needs it.`;
    throw new AppError("missing_required_parameter", text, { param });
  }
  checkSchemaSize("response_format.json_schema.schema", json_schema.schema);
}

/** Throws where the schema is too long. */
export function checkSchemaSize(param: string, schema: unknown): void {
  const length = JSON.stringify(schema ?? {}).length;
  if (length <= MAX_SCHEMA_CHARS) return;
  throw invalid(
    param,
    `a schema has at most ${MAX_SCHEMA_CHARS} characters as JSON, not ${length}`,
  );
}

/** The error of a parameter whose value cannot be. */
export function invalid(param: string, why: string): AppError {
  return new AppError("invalid_value", `Invalid value for '${param}': ${why}.`, { param });
}

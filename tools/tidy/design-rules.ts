import type { FileRule } from "./shape-rules.ts";
import { find, isTest, lineAt, type SourceFile, type SyntaxNode, walk } from "./source-file.ts";

// Rules about designs that the repository has one of: injection, and libs/base/src/async.

const MAX_OPTIONS = 8;
/** Bags from before the rule, with the number of fields that they may not exceed. */
const LARGE_BAGS = new Map([
  ["AttachmentOptions", 9],
  ["BookOptions", 9],
  ["CallParts", 10],
  ["CheckpointerParts", 9],
  ["CollectorOptions", 9],
  ["FormationOptions", 10],
  ["LlamaEngineOptions", 9],
  ["ParameterServerClientOptions", 11],
  ["PpoWorkerOptions", 11],
  ["PullContext", 11],
  ["PullOptions", 9],
  ["RaftControlPlaneOptions", 17],
  ["ReplicaOptions", 17],
  ["WeaveWorkerOptions", 13],
]);
/** Data rather than parts: flags, and fields of requests. */
const DATA = new Set(["EngineOptions", "SamplerOptions", "SamplingOptions", "UpOptions"]);
/** Their count of attempts starts again whenever bytes were received. */
const RETRIES = new Set([
  "libs/engines/src/weights/http-download.ts",
  "libs/engines/src/weights/ranges/range-source.ts",
]);

/** Parts that a class is given: those of one subject are one value, and the others are injected. */
export const optionBag: FileRule = (file) => {
  if (!isProduct(file)) return [];
  return file.body.flatMap((statement) => {
    const declaration = (statement["declaration"] ?? statement) as SyntaxNode;
    if (declaration.type !== "TSInterfaceDeclaration") return [];
    const { name } = declaration["id"] as { readonly name: string };
    if (!/(Options|Parts|Context|Dependencies)$/.test(name) || DATA.has(name)) return [];
    const { body: fields } = declaration["body"] as { readonly body: readonly SyntaxNode[] };
    const limit = LARGE_BAGS.get(name) ?? MAX_OPTIONS;
    if (fields.length <= limit) return [];
    const line = lineAt(file.text, declaration.start);
    const problem = `${name} has ${fields.length} fields; at most ${limit}`;
    return [`${file.path}:${line}: ${problem}: inject them, or name a subject of some`];
  });
};

/** A loop that pauses after what it has caught. */
export const handMadeRetry: FileRule = (file) => {
  if (!isProduct(file) || RETRIES.has(file.path)) return [];
  return find(file, (node) => {
    if (!LOOPS.has(node.type)) return undefined;
    const inside = ownNodes(node);
    const catches = inside.some(({ type, ...rest }) => type === "TryStatement" && rest["handler"]);
    const pauses = inside.some((each) => /^(delay|abortableDelay|sleep)$/.test(calleeOf(each)));
    return catches && pauses ? "a retry by hand: use `retry` or `keepConnected`" : undefined;
  });
};

/** `this.#last = this.#last.then(...)`. */
export const handMadeChain: FileRule = (file) => {
  if (!isProduct(file)) return [];
  return find(file, (node) => {
    if (node.type !== "AssignmentExpression") return undefined;
    const text = (part: unknown) => textOf(file, part as SyntaxNode);
    const isChain = text(node["right"])
      .replace(/\s/g, "")
      .startsWith(`${text(node["left"])}.then(`);
    return isChain ? "a chain of promises by hand: use `SerialQueue`" : undefined;
  });
};

/** A microtask that sends what one turn has gathered. */
export const handMadeFlush: FileRule = (file) => {
  if (!isProduct(file)) return [];
  return find(file, (node) => {
    if (calleeOf(node) !== "queueMicrotask") return undefined;
    const [work] = node["arguments"] as readonly SyntaxNode[];
    const isFlush = work && /flush|pump/i.test(textOf(file, work));
    return isFlush ? "a flush by hand: use `OncePerTurn`" : undefined;
  });
};

const LOOPS = new Set(["ForStatement", "WhileStatement", "DoWhileStatement"]);
const FUNCTIONS = /^(FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/;

function isProduct({ path }: SourceFile): boolean {
  return (
    /^(apps|libs)\//.test(path) &&
    !isTest(path) &&
    !/\/(testing|test)\/|^libs\/(simulation|base\/src\/async)\//.test(path)
  );
}

/** The nodes below one that run with it: not those of functions in it. */
function ownNodes(root: SyntaxNode): SyntaxNode[] {
  const found: SyntaxNode[] = [];
  const functions: SyntaxNode[] = [];
  walk(root, (node) => {
    if (FUNCTIONS.test(node.type)) functions.push(node);
    found.push(node);
  });
  const isDeferred = ({ start, end }: SyntaxNode) =>
    functions.some((each) => each.start <= start && end <= each.end);
  return found.filter((node) => !isDeferred(node));
}

function calleeOf(node: SyntaxNode): string {
  if (node.type !== "CallExpression") return "";
  return String((node["callee"] as SyntaxNode)["name"] ?? "");
}

function textOf({ text }: SourceFile, { start, end }: SyntaxNode): string {
  return text.slice(start, end);
}

import { lineAt, type SourceFile, type SyntaxNode, walk } from "../tidy/source-file.ts";

/** `// holds: id, id` above a test, a describe block, or, before the imports, a whole file. */
export interface HoldsTag {
  readonly path: string;
  readonly line: number;
  readonly ids: readonly string[];
  /** With the titles of the describe blocks around it; undefined for the whole file. */
  readonly title: string | undefined;
}

interface TitledCall {
  readonly start: number;
  readonly end: number;
  readonly title: string;
  readonly isDescribe: boolean;
}

/** The tags of a file; throws where one is above no test. */
export function holdsTags(source: SourceFile): HoldsTag[] {
  const tags = source.comments.flatMap(({ text, start, end, isLine }) => {
    const ids = isLine ? /^\s*holds:(.*)$/.exec(text)?.[1] : undefined;
    return ids === undefined ? [] : [{ start, end, ids: ids.split(",").map((id) => id.trim()) }];
  });
  if (tags.length === 0) return [];
  const calls = titledCalls(source);
  const firstStatement = source.body[0]?.start ?? source.text.length;
  return tags.map(({ start, end, ids }) => {
    const place = { path: source.path, line: lineAt(source.text, start), ids };
    if (start < firstStatement && source.body[0]?.type === "ImportDeclaration") {
      return { ...place, title: undefined };
    }
    const call = calls.find((candidate) => candidate.start === codeAfter(source, end));
    if (!call) throw new Error(`${place.path}:${place.line}: the tag stands above no titled test`);
    return { ...place, title: fullTitle(call, calls) };
  });
}

function fullTitle(call: TitledCall, calls: readonly TitledCall[]): string {
  const enclosing = calls.filter((c) => c.isDescribe && c.start < call.start && c.end > call.end);
  return [...enclosing, call].map(({ title }) => title).join(" ");
}

/** Where the next code begins, after white space and comments. */
function codeAfter(source: SourceFile, offset: number): number {
  const next = source.text.slice(offset).search(/\S/) + offset;
  const comment = source.comments.find(({ start }) => start === next);
  return comment ? codeAfter(source, comment.end) : next;
}

function titledCalls(source: SourceFile): TitledCall[] {
  const found: TitledCall[] = [];
  const visit = (node: SyntaxNode) => {
    const call = node.type === "ExpressionStatement" ? (node["expression"] as SyntaxNode) : node;
    if (node.type !== "ExpressionStatement" || call.type !== "CallExpression") return;
    const title = titleOf(source, (call["arguments"] as SyntaxNode[])[0]);
    if (title === undefined) return;
    const isDescribe = source.text.startsWith("describe", call.start);
    found.push({ start: node.start, end: node.end, title, isDescribe });
  };
  for (const node of source.body) walk(node, visit);
  return found.sort((a, b) => a.start - b.start);
}

function titleOf(source: SourceFile, argument: SyntaxNode | undefined): string | undefined {
  if (argument?.type === "Literal" && typeof argument["value"] === "string") {
    return argument["value"];
  }
  if (argument?.type !== "TemplateLiteral") return undefined;
  return source.text.slice(argument.start + 1, argument.end - 1);
}

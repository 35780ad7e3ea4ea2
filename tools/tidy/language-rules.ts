import { lineAt, type SourceFile, type SyntaxNode, walk } from "./source-file.ts";

/**
 * Rules about the English of comments, titles and names. Each takes a file and gives its problems
 * as `path:line: what is wrong`.
 */

const MAX_SENTENCE_WORDS = 25;
const MAX_TITLE_CHARACTERS = 80;

/** Idiom of this project that a reader from elsewhere does not know, with the standard term. */
const PRIVATE_PHRASES: readonly (readonly [RegExp, string])[] = [
  [/\b(?:tells?|told)\b/i, "reports, sends, says, notifies"],
  [/\b(?:hears?|heard)\b/i, "receives"],
  [/\bwords? (?:of|with|from) (?:a |the )?(?:worker|master|node|server)/i, "report, message"],
  [/\bwho leads\b/i, "the leader"],
  [/\bwhoever\b/i, "the caller that, each node that"],
  [/\b(?:nobody|somebody)\b/i, "no caller, no node, another process"],
  [/\banew\b/i, "again"],
  [/\b(?:thereof|wherein|hitherto|thither)\b/i, "of it, in which, so far"],
  [/\bstands? (?:at|in(?! for)|on|for|as|with)\b/i, "is at, is in"],
  [/\bcomes? to (?:its|his|their) end\b|\bcame to (?:its|their) end\b/i, "ends"],
  [/\bhow (?:far|great) (?:it|they) (?:is|are|has|have)\b/i, "its progress, its size"],
  [/\bso (?:many|much|often)\b(?![^.;:]*\bthat\b)/i, "this many, this much, this often"],
  [/\bso (?:great|long|far) (?:bytes|milliseconds|of)\b/i, "this long"],
  [
    /\b(?:has|have|had) (?:not |just )?come\b(?! (?:back|from|with)\b)/i,
    "was received, has reached",
  ],
  [/\bwhere (?:an? |the |its )[\w' ]{2,30} stands\b/i, "its place, its state"],
  [/\b(?:is|are|was|were)(?: certainly)? over\b(?! (?:[\d…]|capacity))/i, "has ended, has expired"],
  [/\b(?:go(?:es)?|went|going) on\b(?! (?:an?|the|two|each|one|over|\d)\b)/i, "continues"],
  [/\b(?:next|last|each|every|regular|first|one|two|no) looks?\b(?!-)/i, "check, poll"],
  [/\blooked at\b/i, "read, examined, checked"],
  [/\b(?:stands?|stood) still\b/i, "is stopped, is blocked"],
  [/\b(?:is|are|was|were|stays?) away\b/i, "is unreachable, is down"],
  [/\bnow and then\b/i, "at intervals, sometimes"],
  [/\bsick\b/i, "unhealthy"],
  [/\b(?:that|which|it|they|one) (?:is|are) none\b(?! of\b)/i, "is invalid, for another one"],
  [/\bcalled off\b|\bhung up\b|\bof before\b/i, "cancelled, closed the connection, earlier"],
];

/** The same in messages: errors, logs, and what a program prints. */
export const MESSAGE_PHRASES: readonly (readonly [RegExp, string])[] = [
  ...PRIVATE_PHRASES,
  [/\bwithout a word\b/i, "without an error message"],
  [/\bg[ai]ven? (?:it|the (?:call|request|sum)) up\b/i, "cancelled"],
  [/\bwell again\b|\ball is well\b/i, "healthy"],
  [/\bno sign\b/i, "did not respond"],
  [/\b(?:bytes?|frames?|log|it) came\b|\bnothing came\b/i, "was received"],
];

/** Messages of earlier cluster versions, to which logs replay. */
const EARLIER_MESSAGES = ["libs/control/src/state-messages.ts", "libs/control/src/sessions.ts"];

/** Words of such idiom as a part of a name. */
const PRIVATE_WORDS =
  /^(?:told|tells|heard|hears|anew|nobody|somebody|whoever|strangers?|surroundings|leads|unheard|patience|looked)$/;
/** Such names as a whole. */
const PRIVATE_NAMES = /^(?:(?:is|on)Over|LOOK_(?:EVERY_)?MS)$/;

export function longSentences(file: SourceFile): string[] {
  return proseOf(file).flatMap(({ text, line }) =>
    sentences(text)
      .map((sentence) => ({ sentence, words: sentence.split(/\s+/).filter(hasLetter).length }))
      .filter(({ words }) => words > MAX_SENTENCE_WORDS)
      .map(
        ({ sentence, words }) =>
          `${file.path}:${line}: a sentence of ${words} words; at most ${MAX_SENTENCE_WORDS}: ${sentence.slice(0, 60)}`,
      ),
  );
}

export function privatePhrases(file: SourceFile): string[] {
  return phrasesIn(file, [...proseOf(file), ...titlesOf(file)], PRIVATE_PHRASES);
}

export function privateMessages(file: SourceFile): string[] {
  if (EARLIER_MESSAGES.includes(file.path)) return [];
  return phrasesIn(file, messagesOf(file), MESSAGE_PHRASES);
}

/** The same in a page of the documents, its code aside. */
export function privatePagePhrases(path: string, page: string): string[] {
  const text = page.replace(/```[\s\S]*?```|`[^`\n]*`/g, (code) => code.replace(/[^\n]/g, ""));
  const lines = text.split("\n").map((line, at) => ({ text: line, line: at + 1 }));
  return phrasesIn({ path }, lines, PRIVATE_PHRASES);
}

function phrasesIn(
  { path }: Pick<SourceFile, "path">,
  texts: readonly Prose[],
  phrases: readonly (readonly [RegExp, string])[],
): string[] {
  return texts.flatMap(({ text, line }) =>
    phrases.flatMap(([phrase, instead]) => {
      const found = phrase.exec(text)?.[0];
      return found ? [`${path}:${line}: "${found}"; say: ${instead}`] : [];
    }),
  );
}

export function privateNames(file: SourceFile): string[] {
  const found = new Map<string, number>();
  for (const statement of file.body) {
    walk(statement, (node) => {
      if (node.type !== "Identifier" && node.type !== "PrivateIdentifier") return;
      const name = node["name"] as string;
      const words = name.split(/(?<=[a-z0-9])(?=[A-Z])|_/).map((word) => word.toLowerCase());
      if (PRIVATE_NAMES.test(name) || words.some((word) => PRIVATE_WORDS.test(word)))
        found.set(name, node.start);
    });
  }
  return [...found].map(
    ([name, start]) =>
      `${file.path}:${lineAt(file.text, start)}: the name ${name} is private idiom`,
  );
}

export function longTitles(file: SourceFile): string[] {
  return titlesOf(file)
    .filter(({ text }) => text.length > MAX_TITLE_CHARACTERS)
    .map(
      ({ text, line }) =>
        `${file.path}:${line}: a title of ${text.length} characters; at most ${MAX_TITLE_CHARACTERS}`,
    );
}

/** Doc comments, and those of proto files, that do not begin with what they are about. */
export function subjectless(file: SourceFile): string[] {
  return file.comments.flatMap(({ text, start, isLine }) => {
    const begin =
      /^(?:\*[\s*]+|\s*)((?:Of|Those|That of|That which|Whose|With which) .{0,30})/.exec(text)?.[1];
    const isCode = isLine && !file.path.endsWith(".proto");
    if (isCode || begin === undefined) return [];
    return [`${file.path}:${lineAt(file.text, start)}: "${begin}": begin with a noun or a verb`];
  });
}

/** Names in backticks of comments that no code, proto file or script has. */
export function unknownNames(file: SourceFile, known: ReadonlySet<string>): string[] {
  return proseOf(file).flatMap(({ text, line }) =>
    [...text.matchAll(/`#?([A-Za-z_$][\w$.]*)(?:\(\))?`/g)]
      .flatMap((match) => match[1]!.split("."))
      .filter((name) => isCompound(name) && !known.has(name))
      .map((name) => `${file.path}:${line}: no code has a \`${name}\``),
  );
}

/** All words of the code of the files, without their comments. */
export function namesIn(files: readonly SourceFile[]): Set<string> {
  const names = new Set<string>();
  for (const { text, comments } of files) {
    let from = 0;
    for (const { start, end } of [...comments, { start: text.length, end: text.length }]) {
      for (const [name] of text.slice(from, start).matchAll(/[A-Za-z_$][\w$]*/g)) names.add(name);
      from = end;
    }
  }
  return names;
}

/** Names that two packages export for different things. */
export function sharedNames(files: readonly SourceFile[]): string[] {
  const owners = new Map<string, SourceFile[]>();
  for (const file of files) {
    // A stand-in has the names of what it replaces.
    if (/\/(generated|stand-ins)\/|\.test\.ts$|\.d\.mts$/.test(file.path)) continue;
    for (const name of declaredExports(file)) owners.set(name, [...(owners.get(name) ?? []), file]);
  }
  return [...owners]
    .filter(([, at]) => at.length > 1)
    .map(([name, at]) => `${name} is exported by ${at.map(({ path }) => path).join(" and ")}`);
}

function declaredExports(file: SourceFile): Set<string> {
  const names = new Set<string>();
  const imported = new Set(file.imports.flatMap((use) => use.names));
  for (const statement of file.body) {
    if (statement.type !== "ExportNamedDeclaration") continue;
    const declaration = statement["declaration"] as SyntaxNode | null;
    for (const { local, exported } of statement["specifiers"] as SyntaxNode[]) {
      const isOwn = !statement["source"] && !imported.has((local as { name: string }).name);
      if (isOwn) names.add((exported as { name: string }).name);
    }
    if (!declaration) continue;
    const list = (declaration["declarations"] as SyntaxNode[] | undefined) ?? [declaration];
    for (const each of list) {
      const name = (each["id"] as { name?: string } | null)?.name;
      if (name) names.add(name);
    }
  }
  return names;
}

interface Prose {
  readonly text: string;
  readonly line: number;
}

/** The text of each comment: lines of `//` that follow each other are one. */
function proseOf(file: SourceFile): Prose[] {
  const found: Prose[] = [];
  let end = -1;
  for (const comment of file.comments) {
    const line = lineAt(file.text, comment.start);
    const text = comment.text.replace(/^[ \t]*\*+ ?/gm, "").trim();
    const last = found.at(-1);
    const joins = comment.isLine && last && /^\s*$/.test(file.text.slice(end, comment.start));
    if (joins && lineAt(file.text, end) === line - 1) {
      found[found.length - 1] = { text: `${last.text}\n${text}`, line: last.line };
    } else found.push({ text, line });
    end = comment.end;
  }
  return found;
}

/** A list entry, a table row or a blank line ends a sentence too. */
function sentences(text: string): string[] {
  return text
    .replace(/```[\s\S]*?```/g, "\n\n")
    .replace(/`[^`]*`/g, "name")
    .split(/\n\s*\n|\n\s*(?=[-*|] )|(?<=[.!?][)"']?)\s+(?=\S)/);
}

function hasLetter(word: string): boolean {
  return /\p{L}/u.test(word);
}

/** A capital letter after a small one: no word of English. */
function isCompound(name: string): boolean {
  return /[a-z][A-Z]/.test(name);
}

const TESTS = new Set(["it", "test", "describe"]);

function titlesOf(file: SourceFile): Prose[] {
  const titles: Prose[] = [];
  if (!file.path.endsWith(".test.ts")) return titles;
  for (const statement of file.body) {
    walk(statement, (node) => {
      if (node.type !== "CallExpression") return;
      const text = TESTS.has(rootName(node))
        ? literal((node["arguments"] as SyntaxNode[])[0])
        : undefined;
      if (text !== undefined) titles.push({ text, line: lineAt(file.text, node.start) });
    });
  }
  return titles;
}

/** Texts of two words and more, other than titles. */
function messagesOf(file: SourceFile): Prose[] {
  const titles = new Set(titlesOf(file).map(({ text }) => text));
  const messages: Prose[] = [];
  for (const statement of file.body) {
    walk(statement, (node) => {
      const text = literal(node);
      if (text === undefined || titles.has(text) || !/\p{L} \p{L}/u.test(text)) return;
      messages.push({ text, line: lineAt(file.text, node.start) });
    });
  }
  return messages;
}

function rootName(call: SyntaxNode): string {
  let callee = call["callee"] as SyntaxNode;
  while (
    callee.type === "MemberExpression" ||
    callee.type === "CallExpression" ||
    callee.type === "TaggedTemplateExpression"
  ) {
    callee = (callee["object"] ?? callee["callee"] ?? callee["tag"]) as SyntaxNode;
  }
  return (callee["name"] as string | undefined) ?? "";
}

function literal(node: SyntaxNode | undefined): string | undefined {
  if (node?.type === "Literal")
    return typeof node["value"] === "string" ? node["value"] : undefined;
  if (node?.type !== "TemplateLiteral") return undefined;
  return (node["quasis"] as { value: { cooked: string } }[])
    .map(({ value }) => value.cooked ?? "")
    .join("…");
}

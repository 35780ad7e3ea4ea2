import { isTest, lineAt, type SourceFile, type SyntaxNode, walk } from "./source-file.ts";

/**
 * Rules about one file at a time: sizes, names, words. Each takes a file and gives its problems as
 * `path:line: what is wrong`.
 */
export type FileRule = (file: SourceFile) => string[];

const MAX_CONSTRUCTOR_PARAMETERS = 6;

function limits(path: string): { fileLines: number; functionLines: number } {
  const loose = isTest(path) || !/^(libs|apps)\//.test(path);
  return loose ? { fileLines: 600, functionLines: 120 } : { fileLines: 500, functionLines: 60 };
}

export const fileSize: FileRule = (file) => {
  const { fileLines } = limits(file.path);
  if (file.lineCount <= fileLines) return [];
  return [`${file.path}:1: ${file.lineCount} lines; a file has at most ${fileLines}`];
};

export const functionSize: FileRule = (file) => {
  const { functionLines } = limits(file.path);
  const problems: string[] = [];
  for (const statement of file.body) {
    walk(statement, (node, parent) => {
      if (!FUNCTIONS.has(node.type) || isSuite(parent)) return;
      const first = lineAt(file.text, node.start);
      const count = lineAt(file.text, node.end) - first + 1;
      if (count > functionLines) {
        problems.push(
          `${file.path}:${first}: a function of ${count} lines; at most ${functionLines}`,
        );
      }
    });
  }
  return problems;
};

const FUNCTIONS = new Set(["FunctionDeclaration", "FunctionExpression", "ArrowFunctionExpression"]);

/** A `describe(...)` call groups tests; its callback is not a function anyone has to follow. */
function isSuite(node: SyntaxNode | undefined): boolean {
  if (node?.type !== "CallExpression") return false;
  let callee = node["callee"] as SyntaxNode;
  while (callee.type === "MemberExpression" || callee.type === "CallExpression") {
    callee = (callee["object"] ?? callee["callee"]) as SyntaxNode;
  }
  return callee["name"] === "describe";
}

export const constructorSize: FileRule = (file) => {
  const problems: string[] = [];
  for (const statement of file.body) {
    walk(statement, (node) => {
      if (node.type !== "MethodDefinition" || node["kind"] !== "constructor") return;
      const params = (node["value"] as { params: unknown[] }).params.length;
      if (params > MAX_CONSTRUCTOR_PARAMETERS) {
        const line = lineAt(file.text, node.start);
        problems.push(
          `${file.path}:${line}: ${params} constructor parameters; at most ${MAX_CONSTRUCTOR_PARAMETERS}`,
        );
      }
    });
  }
  return problems;
};

/** Its entries belong into the outer literal, one a line. */
export const literalSpread: FileRule = (file) => {
  const problems: string[] = [];
  for (const statement of file.body) {
    walk(statement, (node, parent) => {
      if (node.type !== "SpreadElement" || !LITERALS.has(parent?.type ?? "")) return;
      if ((node["argument"] as SyntaxNode).type !== parent?.type) return;
      const line = lineAt(file.text, node.start);
      problems.push(
        `${file.path}:${line}: spreads a literal into another: write its entries there`,
      );
    });
  }
  return problems;
};

const LITERALS = new Set(["ObjectExpression", "ArrayExpression"]);

/** Constants of sources are in capitals; what their tests declare is free. */
export const constantCase: FileRule = (file) => {
  if (isTest(file.path) || !/^(apps|libs)\//.test(file.path)) return [];
  return file.body.flatMap((statement) => {
    const declaration = (statement["declaration"] ?? statement) as SyntaxNode;
    if (declaration.type !== "VariableDeclaration" || declaration["kind"] !== "const") return [];
    return (declaration["declarations"] as SyntaxNode[]).flatMap((each) => {
      const { name = "" } = each["id"] as { name?: string };
      if (!isPlainValue(each["init"] as SyntaxNode | null) || /^[A-Z][A-Z0-9_]*$/.test(name))
        return [];
      const line = lineAt(file.text, each.start);
      return [`${file.path}:${line}: ${name} is a constant of its module: write it in upper case`];
    });
  });
};

/** A number or a text, or what is computed of such alone. */
function isPlainValue(node: SyntaxNode | null): boolean {
  if (!node) return false;
  if (node.type === "Literal") return /^(number|string)$/.test(typeof node["value"]);
  if (node.type === "UnaryExpression") return isPlainValue(node["argument"] as SyntaxNode);
  if (node.type !== "BinaryExpression") return false;
  return isPlainValue(node["left"] as SyntaxNode) && isPlainValue(node["right"] as SyntaxNode);
}

export const fileName: FileRule = (file) => {
  const name = file.path.slice(file.path.lastIndexOf("/") + 1);
  if (
    /^[a-z0-9]+(-[a-z0-9]+)*(\.(controller|module|test|config|bench|d))*\.(ts|tsx|mts|mjs)$/.test(
      name,
    )
  )
    return [];
  return [`${file.path}:1: file names are kebab-case`];
};

export const noBarrel: FileRule = (file) => {
  if (/(^|\/)index\.(ts|tsx|mts|mjs)$/.test(file.path)) {
    return [`${file.path}:1: no index files: import from the file that declares the name`];
  }
  const reExports = file.body.filter(
    (node) => /^Export(All|Named)Declaration$/.test(node.type) && node["source"],
  );
  if (reExports.length === 0 || reExports.length < file.body.length) return [];
  return [`${file.path}:1: only re-exports: import from the file that declares the name`];
};

/** A table of data is a fine file; a file for the sake of one short constant is not. */
export const noSingleConstant: FileRule = (file) => {
  const statements = file.body.filter((node) => node.type !== "ImportDeclaration");
  const only = statements[0];
  if (statements.length !== 1 || only?.type !== "ExportNamedDeclaration") return [];
  const declaration = only["declaration"] as SyntaxNode | null;
  if (declaration?.type !== "VariableDeclaration") return [];
  const lines = lineAt(file.text, only.end) - lineAt(file.text, only.start) + 1;
  const [declarator] = declaration["declarations"] as SyntaxNode[];
  const value = declarator?.["init"] as SyntaxNode | null | undefined;
  if (lines > 3 || (value && FUNCTIONS.has(value.type))) return [];
  return [`${file.path}:1: one constant is no file: put it where it is used`];
};

// Written in two parts so that this file does not break its own rule.
const FORBIDDEN: readonly { readonly pattern: RegExp; readonly why: string }[] = [
  { pattern: new RegExp(`\\bTO${"DO"}\\b`), why: "finish it, or open an issue" },
  { pattern: new RegExp(`\\bFIX${"ME"}\\b`), why: "fix it, or open an issue" },
  { pattern: new RegExp(`biome-${"ignore"}`), why: "change the code or the rule" },
  { pattern: new RegExp(`@ts-${"(ignore|nocheck)"}`), why: "give the value its type" },
  { pattern: new RegExp(`\\b(it|test|describe)\\.${"only"}\\b`), why: "it hides the other tests" },
  { pattern: new RegExp(`["'\`\\s(=]/(wo${"rk"}|Us${"ers"})/`), why: "a path of one machine" },
];

export const forbiddenWords: FileRule = (file) =>
  file.text.split("\n").flatMap((line, index) =>
    FORBIDDEN.flatMap(({ pattern, why }) => {
      const found = pattern.exec(line);
      return found ? [`${file.path}:${index + 1}: "${found[0].trim()}" is forbidden: ${why}`] : [];
    }),
  );

export const domainNames: FileRule = (file) => [
  ...file.exports
    .filter(({ name }) =>
      /(Manager|Helper|Util)s?(?![a-z])|^(manager|helper|util)s?(?![a-z])/.test(name),
    )
    .map(({ name, line }) => `${file.path}:${line}: ${name} says nothing: name what it does`),
  ...file.exports
    .filter(({ name, typeOnly }) => typeOnly && /^I[A-Z][a-z]/.test(name))
    .map(({ name, line }) => `${file.path}:${line}: ${name}: no I- prefix on types`),
];

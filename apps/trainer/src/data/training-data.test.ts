// holds: train-data

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseTrainingConfig, type SupervisedTraining } from "@heddle/contracts/training";
import { afterEach, beforeEach, expect, test } from "vitest";
import { joinText, readTrainingData } from "./data-files.ts";
import { readTable, splitTable } from "./table-data.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-data-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

function file(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const supervised = (config: object): SupervisedTraining =>
  parseTrainingConfig("weave", {
    program: "regression",
    data: "x",
    total_steps: 1,
    ...config,
  }) as SupervisedTraining;

const splitCsv = (content: string, config: object = {}) =>
  splitTable(readTable(readTrainingData([file("t.csv", content)])), supervised(config));

test("folders: read by name without hidden files and links; the digest covers all", () => {
  mkdirSync(join(folder, "b"));
  file("c.txt", "3");
  file("b/x.txt", "2");
  file("a.txt", "1");
  file(".hidden", "no");
  symlinkSync("/etc/passwd", join(folder, "link"));
  const data = readTrainingData([folder]);
  expect(joinText(data).toString()).toBe("123");
  expect(data.digest.sha256).toBe(createHash("sha256").update("123").digest("hex"));
  expect(data.digest.files.map(({ path }) => path)).toEqual([
    join(folder, "a.txt"),
    join(folder, "b/x.txt"),
    join(folder, "c.txt"),
  ]);
});

test("files: the path of an unreadable, empty or binary one is named", () => {
  const path = join(folder, "none");
  expect(() => readTrainingData([path])).toThrow(`${path} cannot be read on this worker: ENOENT`);
  expect(() => readTrainingData([folder])).toThrow(`${folder} holds no files`);
  const binary = file("b.bin", Uint8Array.of(65, 0));
  expect(() => joinText(readTrainingData([binary]))).toThrow(
    /b\.bin is not text: .* zero byte at 1/,
  );
  const empty = file("e.txt", "");
  expect(() => joinText(readTrainingData([empty]))).toThrow(`${empty} is empty`);
});

test("table: divided into features and targets: the last column or named ones", () => {
  const table = "a,b,c\r\n1,2,3\n4,5,6\n\n";
  expect(splitCsv(table)).toMatchObject({
    features: 2,
    outputs: 1,
    rows: { count: 2, features: Float32Array.of(1, 2, 4, 5), target: Float32Array.of(3, 6) },
  });
  expect(splitCsv(table, { target: ["c", "a"] })).toMatchObject({
    features: 1,
    outputs: 2,
    rows: { features: Float32Array.of(2, 5), target: Float32Array.of(3, 1, 6, 4) },
  });
  const classes = splitCsv("x,kind\n1,0\n2,2\n", { program: "classification" });
  expect(classes).toMatchObject({ outputs: 3, rows: { target: Int32Array.of(0, 2) } });
});

test.each([
  ["a,b\n1,2\n3,x\n", {}, /t\.csv has "x" in row 3, column 2 \(b\), which is not a number/],
  ["a,b\n1,\n", {}, /has "" in row 2, column 2 \(b\)/],
  ["a,b\n1,2,3\n", {}, /has 3 cells in row 2, and 2 columns/],
  ["1,2\n3,4\n", {}, /has no header/],
  ["a,b\n", {}, /has no rows/],
  ["", {}, /t\.csv is empty: its first line must name the columns/],
  ["\uFEFF\n\n", {}, /is empty/],
  ["a,b\n1,1e300\n", {}, /has "1e300" in row 2, column 2 \(b\), which is too large for a float32/],
  ['a,b\n1,"2\n', {}, /has a quote in row 2 that is never closed/],
  ["a\n1\n", {}, /has no column that is not predicted/],
  ["a,b\n1,2\n", { target: "z" }, /has no column "z" to predict: its columns are a, b/],
  [
    "a,b\n1,0.5\n",
    { program: "classification" },
    /has 0\.5 as the class of row 1, column 2 \(b\): classes are whole numbers from 0 to 1048575$/,
  ],
  [
    "a,kind\n1,0\n2,300000000\n",
    { program: "classification" },
    /t\.csv has 300000000 as the class of row 2, column 2 \(kind\): .* from 0 to 1048575$/,
  ],
  [
    "a,b\n1,7\n",
    { program: "classification", classes: 3 },
    /has 7 as the class of row 1, column 2 \(b\): .* from 0 to 2,/,
  ],
])("table: %j with %j is refused", (content, config, expected) => {
  expect(() => splitCsv(content, config)).toThrow(expected);
});

test.each([
  ["x,t,t\n1,2,3\n", { target: "t" }],
  ["x,t,t\n1,2,3\n", {}],
  ["x,t,t\n1,2,3\n", { target: "x" }],
])("table: with two columns of one name, %j with %j is refused", (content, config) => {
  expect(() => splitCsv(content, config)).toThrow(
    /t\.csv has two columns of the name "t", columns 2 and 3: give each column a name of its own$/,
  );
});

test("messages: quote a file briefly, with its length, and keep the location", () => {
  const digits = "1".repeat(20_000_000);
  expect(() => splitCsv(`a,b\n1,${digits}\n`)).toThrow(
    /t\.csv has "1{40}…" \(20000000 characters\) in row 2, column 2 \(b\), which is not a number$/,
  );
  const name = "n".repeat(100_000);
  const few = /^the training data \S+t\.csv has .{1,400}$/;
  const many = Array.from({ length: 5_000 }, (_, i) => `c${i}`);
  expect(() => splitCsv(`a,${name}\n1,x\n`)).toThrow(few);
  expect(() => splitCsv(`a,${name}\n1,2\n`, { target: "b" })).toThrow(few);
  expect(() => splitCsv(`${many}\n${many.map(() => 1)}\n`, { target: "b" })).toThrow(
    /its columns are c0, .*, c15 and 4984 more$/,
  );
  expect(() => splitCsv(`a,${name}\n1,0.5\n`, { program: "classification" })).toThrow(few);
  const typed = file("t.npy", npy("x".repeat(60_000), "1, 1", new Uint8Array(4)));
  expect(() => readTable(readTrainingData([typed]))).toThrow(
    /t\.npy has elements of the type "x{40}…" \(60000 characters\): use <f4/,
  );
  const shaped = file("t.npy", npy("<f4", "1, ".repeat(9_000), new Uint8Array(4)));
  expect(() => readTable(readTrainingData([shaped]))).toThrow(/shape \(.{40,100}\): a table has/);
});

test.each([
  [{ outputs: 4 }, /has 3 columns, and config\.outputs asks for the last 4 of them: leave one/],
  [{ target: "c", outputs: 2 }, /the 1 columns of config\.target, and config\.outputs is 2/],
])("table: with three columns, %j is refused at config.outputs", (config, expected) => {
  let caught: unknown;
  try {
    splitCsv("a,b,c\n1,2,3\n", config);
  } catch (error) {
    caught = error;
  }
  expect(caught).toMatchObject({
    param: "config.outputs",
    message: expect.stringMatching(expected),
  });
});

test("files: a pipe, a socket or a device is refused before it is read", () => {
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  expect(() => readTrainingData([pipe])).toThrow(
    `${pipe} is a named pipe: give a file or a folder`,
  );
  expect(() => readTrainingData(["/dev/zero"])).toThrow("/dev/zero is a device: give a file");
  symlinkSync("/dev/zero", join(folder, "link"));
  expect(() => readTrainingData([join(folder, "link")])).toThrow("link is a device");
});

test("UTF-16: refused with advice, in text and tables, with its mark or without", () => {
  const utf16 = Buffer.from("a,b\n1,2\n", "utf16le");
  const marked = file("marked.csv", Buffer.concat([Buffer.of(0xff, 0xfe), utf16]));
  const plain = file("plain.csv", utf16);
  for (const work of [joinText, readTable]) {
    expect(() => work(readTrainingData([marked]))).toThrow("is UTF-16 text: save it as UTF-8");
    expect(() => work(readTrainingData([plain]))).toThrow(/UTF-16 or UTF-32, save it as UTF-8/);
  }
});

test("CSV: quoted cells may have commas, quotes and line ends; rows count as lines", () => {
  const csv = '"width, in cm","the ""true""\none"\n"1","2"\n3, "4" \n';
  const table = readTable(readTrainingData([file("t.csv", csv)]));
  expect(table).toMatchObject({
    names: ["width, in cm", 'the "true"\none'],
    values: Float32Array.of(1, 2, 3, 4),
  });
  expect(() => splitCsv(`${csv}5,x\n`)).toThrow(/"x" in row 5, column 2/);
});

/** As numpy.save writes it. */
function npy(type: string, shape: string, data: Uint8Array, order = "False"): Buffer {
  const header = `{'descr': '${type}', 'fortran_order': ${order}, 'shape': (${shape}), }\n`;
  const length = Buffer.alloc(2);
  length.writeUInt16LE(header.length);
  const magic = Buffer.from("\x93NUMPY\x01\x00", "latin1");
  return Buffer.concat([magic, length, Buffer.from(header, "latin1"), data]);
}

test("npy: files of each element type are read alike", () => {
  for (const [type, Numbers] of [
    ["<f4", Float32Array],
    ["<f8", Float64Array],
    ["<i4", Int32Array],
    ["|u1", Uint8Array],
  ] as const) {
    const bytes = new Uint8Array(Numbers.of(1, 2, 3, 4, 5, 6).buffer);
    const table = readTable(readTrainingData([file("t.npy", npy(type, "2, 3", bytes))]));
    expect([...table.values], type).toEqual([1, 2, 3, 4, 5, 6]);
    expect(splitTable(table, supervised({ outputs: 2 }))).toMatchObject({
      features: 1,
      outputs: 2,
    });
  }
});

test.each([
  [Buffer.from("no"), /does not begin as a \.npy file/],
  [npy("<c8", "1, 1", new Uint8Array(8)), /elements of the type "<c8"/],
  [npy("<f4", "1, 1", new Uint8Array(4), "True"), /stored by columns/],
  [npy("<f4", "4,", new Uint8Array(16)), /has the shape \(4\)/],
  [npy("<f4", "2, 2", new Uint8Array(8)), /shorter or longer/],
  [
    npy("<f4", "1, 2", new Uint8Array(Float32Array.of(1, Number.NaN).buffer)),
    /NaN in row 1, column 2/,
  ],
  [
    npy("<f8", "1, 2", new Uint8Array(Float64Array.of(1, 1e300).buffer)),
    /1e\+300 in row 1, column 2, which is too large for a float32/,
  ],
])("npy: file %# is refused with its reason", (bytes, expected) => {
  const data = readTrainingData([file("t.npy", bytes)]);
  expect(() => readTable(data)).toThrow(expected);
});

import { describe, expect, it } from "vitest";
import { printRecord, printRows, type RowFormat } from "./rows.ts";
import { type Terminal, terminal } from "./terminal.ts";

const ROWS = [
  { id: "a", size: 1, tags: ["x: y", "no"] },
  { id: "long-id", size: 22, tags: [] },
];

/** The output to a stream that is no terminal. */
function written(write: (out: Terminal) => void): string {
  let text = "";
  const stream = {
    isTTY: false,
    write: (piece: string) => {
      text += piece;
    },
  };
  write(terminal(stream as unknown as NodeJS.WriteStream));
  return text;
}

function print(format: RowFormat): string {
  const columns = [
    { header: "ID", value: (row: (typeof ROWS)[0]) => row.id },
    { header: "SIZE", value: (row: (typeof ROWS)[0]) => String(row.size) },
    { header: "TAGS", value: (row: (typeof ROWS)[0]) => row.tags.join(), wide: true },
  ];
  return written((out) => printRows(ROWS, columns, format, out));
}

describe("printed rows", () => {
  it("are aligned columns as a table, with more of them when wide", () => {
    expect(print("table")).toBe("ID       SIZE\na        1\nlong-id  22\n");
    expect(print("wide")).toBe("ID       SIZE  TAGS\na        1     x: y,no\nlong-id  22    -\n");
  });

  it("are whole records as JSON", () => {
    expect(JSON.parse(print("json"))).toEqual(ROWS);
  });

  it("are the first column alone as names", () => {
    expect(print("name")).toBe("a\nlong-id\n");
  });

  it("are block YAML in which no text can be taken for something else", () => {
    expect(print("yaml")).toBe(
      '- id: "a"\n  size: 1\n  tags:\n    - "x: y"\n    - "no"\n- id: "long-id"\n  size: 22\n  tags: []\n',
    );
    const record = { "a b": { c: null, d: {} } };
    const yaml = written((out) => printRecord(record, "", "yaml", out));
    expect(yaml).toBe('"a b":\n  c: null\n  d: {}\n');
  });
});

import { describe, expect, it } from "vitest";
import { type ElementKeys, elementKeys, NO_ELEMENTS } from "./element-keys.ts";

const shown = ({ keys }: ElementKeys) => [...keys].map(([row, key]) => `${row}${key}`).join(" ");
const four = elementKeys(["a", "b", "c", "d"], NO_ELEMENTS);

describe("elements of rows", () => {
  it("first rows: each has its own, and nothing has jumped", () => {
    expect(shown(four)).toBe("a0 b1 c2 d3");
    expect(four.jumps).toBe(0);
  });

  it("slow scroll: rows that stay keep their elements, and new ones get new elements", () => {
    const down = elementKeys(["b", "c", "d", "e"], four);
    expect(shown(down)).toBe("b1 c2 d3 e4");
    expect(shown(elementKeys(["a", "b", "c", "d"], down))).toBe("a5 b1 c2 d3");
    expect(down.jumps).toBe(0);
  });

  it("jump: all rows take the elements before in their order, also rows that stay", () => {
    const far = elementKeys(["d", "e", "f", "g"], four);
    expect(shown(far)).toBe("d0 e1 f2 g3");
    expect(far.jumps).toBe(1);
  });

  it("jump to more rows: the others get new elements", () => {
    expect(shown(elementKeys(["p", "q", "r", "s", "t"], four))).toBe("p0 q1 r2 s3 t4");
  });

  it("rendered twice: the second time changes nothing", () => {
    const far = elementKeys(["e", "f", "g", "h"], four);
    expect(elementKeys(["e", "f", "g", "h"], far)).toEqual(far);
  });
});

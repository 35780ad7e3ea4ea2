import { z } from "zod";

const label = z.string().max(200);
const cell = z.union([z.string().max(2_000), z.number(), z.null()]);
const point = z.tuple([z.number(), z.number()]);

/** What a plugin's panel shows in the console, which draws it with its own parts. */
export const panelSchema = z.strictObject({
  parts: z
    .array(
      z.discriminatedUnion("kind", [
        z.strictObject({ kind: z.literal("text"), text: z.string().max(10_000) }),
        z.strictObject({
          kind: z.literal("facts"),
          rows: z.array(z.tuple([label, cell])).max(100),
        }),
        z.strictObject({
          kind: z.literal("table"),
          label,
          columns: z.array(label).min(1).max(20),
          rows: z.array(z.array(cell).max(20)).max(1_000),
        }),
        z.strictObject({
          kind: z.literal("series"),
          label,
          points: z.array(point).max(10_000).describe("Pairs of x and y; x does not fall."),
        }),
      ]),
    )
    .max(16),
});

export type PanelView = z.output<typeof panelSchema>;
export type PanelPart = PanelView["parts"][number];
export type PanelCell = z.output<typeof cell>;

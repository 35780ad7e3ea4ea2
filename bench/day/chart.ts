interface Line {
  readonly name: string;
  readonly points: readonly { readonly x: number; readonly y: number }[];
}

interface Chart {
  readonly title: string;
  readonly unit: string;
  readonly lines: readonly Line[];
  /** Moments to mark, as x. */
  readonly marks: readonly number[];
}

const WIDTH = 960;
const HEIGHT = 240;
const MARGIN = { left: 64, right: 160, top: 28, bottom: 28 };
const COLORS = ["#0b6e99", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#be185d", "#475569"];

/** A page of line charts over minutes, one below the other, as SVG. */
export function chartPage(charts: readonly Chart[]): string {
  const height = charts.length * HEIGHT;
  const body = charts.map(
    (chart, at) => `<g transform="translate(0 ${at * HEIGHT})">${drawn(chart)}</g>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>${body.join("")}</svg>\n`;
}

function drawn({ title, unit, lines, marks }: Chart): string {
  const points = lines.flatMap((line) => line.points);
  const maxX = Math.max(1e-9, ...points.map(({ x }) => x));
  const maxY = Math.max(1e-9, ...points.map(({ y }) => y));
  const x = (value: number) =>
    (MARGIN.left + (value / maxX) * (WIDTH - MARGIN.left - MARGIN.right)).toFixed(1);
  const y = (value: number) =>
    (HEIGHT - MARGIN.bottom - (value / maxY) * (HEIGHT - MARGIN.top - MARGIN.bottom)).toFixed(1);
  const axis = `<path d="M${x(0)} ${y(maxY)}V${y(0)}H${x(maxX)}" fill="none" stroke="#94a3b8"/>`;
  const texts = [
    text(MARGIN.left, 18, `${title} (${unit})`, "start"),
    text(MARGIN.left - 6, Number(y(maxY)) + 4, maxY.toPrecision(3), "end"),
    text(MARGIN.left - 6, Number(y(0)) + 4, "0", "end"),
    text(Number(x(maxX)), HEIGHT - 8, `${maxX.toFixed(1)} min`, "end"),
  ];
  const faults = marks
    .filter((mark) => mark <= maxX)
    .map((mark) => `<path d="M${x(mark)} ${y(0)}v6" stroke="#dc2626"/>`);
  const curves = lines.map(({ name, points: line }, at) => {
    const color = COLORS[at % COLORS.length] as string;
    const path = line.map((point) => `${x(point.x)},${y(point.y)}`).join(" ");
    const legend = text(WIDTH - MARGIN.right + 8, MARGIN.top + 12 + at * 15, name, "start", color);
    return `<polyline points="${path}" fill="none" stroke="${color}"/>${legend}`;
  });
  return [axis, ...texts, ...faults, ...curves].join("");
}

function text(x: number, y: number, content: string, anchor: string, fill = "#0f172a"): string {
  return `<text x="${x}" y="${y}" text-anchor="${anchor}" fill="${fill}">${content}</text>`;
}

/** Replaces what is between `<!-- generated: NAME -->` and the next `<!-- end -->` of a page. */
export function replaceGenerated(page: string, name: string, text: string): string {
  const opening = `<!-- generated: ${name} -->`;
  const start = page.indexOf(opening);
  const end = page.indexOf("<!-- end -->", start);
  if (start === -1 || end === -1) throw new Error(`the page lacks ${opening} and <!-- end -->`);
  return `${page.slice(0, start + opening.length)}\n\n${text.trim()}\n\n${page.slice(end)}`;
}

/** Text as Markdown shows it unchanged, except for code in backticks. */
export function escapeMarkdown(text: string): string {
  return text.replace(/`[^`]+`|[\\`*_[\]|~]|<(?=[a-z!/])/gi, (part) =>
    part.length > 1 ? part : `\\${part}`,
  );
}

import { useState } from "react";
import { STRINGS } from "../strings.ts";

interface CodeBlockOptions {
  readonly label: string;
  readonly text: string;
}

/** A text to read and to copy; its region takes the keyboard's focus, so that it can be scrolled. */
export function CodeBlock({ label, text }: CodeBlockOptions) {
  const [isCopied, setCopied] = useState(false);
  // Browsers offer the clipboard on TLS and loopback alone.
  const clipboard = navigator.clipboard as Clipboard | undefined;
  const copy = async () => {
    await clipboard?.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2_000);
  };
  return (
    <div className="code-block">
      {clipboard && (
        <button type="button" onClick={copy}>
          {isCopied ? STRINGS.common.copied : STRINGS.common.copy}
        </button>
      )}
      <section className="code" aria-label={label} tabIndex={0}>
        <pre>{text}</pre>
      </section>
    </div>
  );
}

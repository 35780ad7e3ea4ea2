import { useRef, useState } from "react";
import { STRINGS } from "../strings.ts";
import { CodeBlock } from "../ui/code-block.tsx";
import { CODE_LANGUAGES, type CodeLanguage, type ShownRequest, viewCode } from "./view-code.ts";

const text = STRINGS.playground;

/** Shows the next request as code in three languages. */
export function CodeDialog({ request }: { readonly request: ShownRequest }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [language, setLanguage] = useState<CodeLanguage>("curl");
  return (
    <>
      <button type="button" onClick={() => dialog.current?.showModal()}>
        {text.viewCode}
      </button>
      <dialog ref={dialog} className="wide-dialog" aria-label={text.viewCode}>
        <div className="dialog">
          <h2>{text.viewCode}</h2>
          <div className="buttons start">
            {CODE_LANGUAGES.map((each) => (
              <button
                type="button"
                key={each}
                aria-pressed={each === language}
                onClick={() => setLanguage(each)}
              >
                {each}
              </button>
            ))}
          </div>
          <p className="muted">{text.keyInCode}</p>
          <CodeBlock label={language} text={viewCode(language, location.origin, request)} />
          <div className="buttons">
            <button type="button" onClick={() => dialog.current?.close()}>
              {STRINGS.common.close}
            </button>
          </div>
        </div>
      </dialog>
    </>
  );
}

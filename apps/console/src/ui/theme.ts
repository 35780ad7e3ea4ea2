const STORE = "heddle-theme";

export type ThemeChoice = "system" | "light" | "dark";

/** The chosen theme; it is no secret, and kept over reloads. */
export function chosenTheme(): ThemeChoice {
  const stored = localStorage.getItem(STORE);
  return stored === "light" || stored === "dark" ? stored : "system";
}

export function applyTheme(choice: ThemeChoice): void {
  if (choice === "system") localStorage.removeItem(STORE);
  else localStorage.setItem(STORE, choice);
  document.documentElement.style.colorScheme = choice === "system" ? "light dark" : choice;
}

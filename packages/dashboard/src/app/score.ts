/**
 * Letters in order anywhere; a run at the start of a word counts more. Returns null if a letter is
 * missing.
 */
export function score(label: string, typed: string): number | null {
  const text = label.toLowerCase();
  let at = 0;
  let points = 0;
  for (const letter of typed.toLowerCase().replaceAll(' ', '')) {
    const found = text.indexOf(letter, at);
    if (found < 0) return null;
    points += found === at ? 3 : found === 0 || /[\s/.-]/.test(text[found - 1] ?? '') ? 2 : 0;
    at = found + 1;
  }
  return points - text.length / 100;
}

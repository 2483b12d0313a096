/**
 * Template tag for HTML that prevents injection: the template is markup, and inserted values are
 * escaped as text.
 */
class Markup {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}
export type { Markup };
type Part = string | number | Markup | readonly Markup[] | null;

const ENTITIES: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
const escape = (text: string): string => text.replace(/[&<>"']/g, (c) => ENTITIES[c] ?? c);

/**
 * Templates must put attribute values in double quotes. Addresses in attributes must be checked by
 * the caller.
 */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  const text = strings
    .map((s, i) => s + (i < parts.length ? rendered(parts[i] ?? null) : ''))
    .join('');
  return new Markup(text);
}

function rendered(part: Part): string {
  if (part === null) return '';
  if (part instanceof Markup) return part.text;
  if (typeof part === 'object') return part.map((p) => p.text).join('');
  return escape(String(part));
}

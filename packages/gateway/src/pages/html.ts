/** HTML that cannot be injected into: what stands in the template is markup, what is put into it is text. */
class Markup {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}
export type { Markup };
type Part = string | number | Markup | readonly Markup[] | null;

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
const escape = (text: string): string => text.replace(/[&<>"']/g, (c) => ENTITIES[c] ?? c);

/** Attribute values stand in double quotes; addresses in them are our own paths. */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  const text = strings.map((s, i) => s + (i < parts.length ? rendered(parts[i] ?? null) : '')).join('');
  return new Markup(text);
}

function rendered(part: Part): string {
  if (part === null) return '';
  if (part instanceof Markup) return part.text;
  if (typeof part === 'object') return part.map((p) => p.text).join('');
  return escape(String(part));
}

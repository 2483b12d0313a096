/** Formats and parses numbers with units. */
/** Formats a duration: `4.2 s`, `3 min 20 s`, `2 h 5 min`. */
export function seconds(ms: number): string {
  const s = Math.max(0, ms / 1000);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const minutes = Math.floor(s / 60);
  return minutes < 60
    ? `${minutes} min ${Math.round(s % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Formats a past time: `5 s ago`, `3 min ago`, `2 h ago`, `12 d ago`. */
export function ago(at: string | null, now: number): string {
  if (at === null) return 'never';
  const s = Math.max(0, (now - Date.parse(at)) / 1000);
  if (s < 60) return `${Math.floor(s)} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  return s < 86_400 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86_400)} d ago`;
}

/** Parses `512MiB`, `2GiB` or `1000` to bytes. Returns null for other texts. */
export function parseBytes(text: string): number | null {
  const match = /^(\d+(?:\.\d+)?)\s*([kmgt]i?b?|b)?$/i.exec(text.trim());
  if (match === null) return null;
  const power = 'bkmgt'.indexOf((match[2] ?? 'b').charAt(0).toLowerCase());
  return Math.round(Number(match[1]) * 1024 ** power);
}

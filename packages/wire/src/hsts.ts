/** Strict-Transport-Security (RFC 6797) of gateway and control plane. */

/**
 * The header's value where people reach Berth by https; null: they do not. For this host alone: other hosts under the domain may have
 * no https. A browser ignores the header over http (section 8.1).
 */
export const hstsOf = (publicUrl: string): string | null => (publicUrl.startsWith('https:') ? 'max-age=31536000' : null);

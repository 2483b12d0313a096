/** The header Strict-Transport-Security (RFC 6797) that gateway and control plane send. */

/**
 * Returns the header's value, or null if `publicUrl` is not https. The value omits
 * `includeSubDomains`, because other hosts under the domain might not support https. Browsers ignore
 * the header over http (RFC 6797 section 8.1).
 */
export const hstsOf = (publicUrl: string): string | null =>
  publicUrl.startsWith('https:') ? 'max-age=31536000' : null;

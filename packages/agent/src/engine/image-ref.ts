/** Names of images: `registry/repository:tag@digest`. Pure. */

/**
 * Returns `{registry}/{project}` of `{registry}/{project}:{tag}` or `…@sha256:…`. Does not take a
 * registry's port for a tag.
 */
export function repositoryOf(ref: string): string {
  const withoutDigest = ref.split('@')[0] ?? ref;
  const slash = withoutDigest.lastIndexOf('/');
  const colon = withoutDigest.indexOf(':', slash + 1);
  return colon === -1 ? withoutDigest : withoutDigest.slice(0, colon);
}

/**
 * Returns the registry in the name of an image. The first part is a registry if it has a dot or a
 * port, or is localhost.
 */
export function registryOf(image: string): string {
  const [first = '', ...rest] = image.split('/');
  return rest.length > 0 && /[.:]|^localhost$/.test(first) ? first : 'docker.io';
}

/**
 * Splits a reference into name and tag. The engine accepts a digest as the tag, and pulls all tags
 * if none is given.
 */
export function partsOf(ref: string): { name: string; tag: string } {
  const [named = '', digest] = ref.split('@');
  const colon = named.indexOf(':', named.lastIndexOf('/') + 1);
  const name = colon === -1 ? named : named.slice(0, colon);
  return { name, tag: digest ?? (colon === -1 ? 'latest' : named.slice(colon + 1)) };
}

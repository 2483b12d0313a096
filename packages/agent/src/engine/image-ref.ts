/** Names of images: `registry/repository:tag@digest`. Pure. */

/**
 * Returns `{registry}/{project}` of `{registry}/{project}:{tag}` or `…@sha256:…`. The port of a
 * registry is not a tag.
 */
export function repositoryOf(ref: string): string {
  const withoutDigest = ref.split('@')[0] ?? ref;
  const slash = withoutDigest.lastIndexOf('/');
  const colon = withoutDigest.indexOf(':', slash + 1);
  return colon === -1 ? withoutDigest : withoutDigest.slice(0, colon);
}

/** Returns the registry in the name of an image: it has a dot or a port, or is localhost. */
export function registryOf(image: string): string {
  const [first = '', ...rest] = image.split('/');
  return rest.length > 0 && /[.:]|^localhost$/.test(first) ? first : 'docker.io';
}

/** The engine takes a digest as a tag. Without a tag it would pull all of them. */
export function partsOf(ref: string): { name: string; tag: string } {
  const [named = '', digest] = ref.split('@');
  const colon = named.indexOf(':', named.lastIndexOf('/') + 1);
  const name = colon === -1 ? named : named.slice(0, colon);
  return { name, tag: digest ?? (colon === -1 ? 'latest' : named.slice(colon + 1)) };
}

import type { Node } from '@berth/wire/node';

/** Returns instructions for containers that only a person can remove. */
export const toRemove = (left: Node['unmanaged'] = []): string[] =>
  left.map(
    (c) =>
      `remove by hand: ${c.container} of ${c.project} on ${c.node} (docker rm -f ` +
      `${c.container}), then: berth node removed ${c.node} ${c.container}`,
  );

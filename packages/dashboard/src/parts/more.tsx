/** A button that loads the next page of a long list. */
import { Button } from '../ui/controls.tsx';

/**
 * `list.more` (from useApiList) is null on the last page and while a page loads. `list.hasMore`
 * keeps the button and its focus while a page loads.
 */
export const More = ({
  list,
  children = 'Show more',
}: {
  list: { more: (() => void) | null; hasMore: boolean };
  children?: string;
}) =>
  !list.hasMore ? null : (
    <div style={{ display: 'flex', justifyContent: 'flex-end', padding: 16 }}>
      <Button onClick={() => list.more?.()} busy={list.more === null}>
        {children}
      </Button>
    </div>
  );

/** The rest of a long list. */
import { Button } from '../ui/controls.tsx';

/**
 * `more`: of useApiList; null on the last page and while a page loads. `hasMore` keeps the button, and
 * the focus on it, meanwhile.
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

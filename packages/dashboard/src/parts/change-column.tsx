/** The last column of a table: a menu with the changes of its row. */
import { Menu, type MenuItem } from '../ui/controls.tsx';
import type { Cell } from '../ui/data.tsx';

export const changeColumn = <T,>(
  nameOf: (row: T) => string,
  itemsOf: (row: T) => readonly MenuItem[],
): Cell<T> => ({
  head: 'Change',
  cell: (row) => <Menu label={`Actions for ${nameOf(row)}`} items={itemsOf(row)} />,
});

type Removal<T> = {
  /** The name of the row in the label of its menu. */
  nameOf: (row: T) => string;
  label?: string;
  /** Why nobody can remove the row now; null: it is possible. */
  reason: string | null;
  onClick: (row: T) => void;
};
/** A menu that can only remove its row. */
export const removeColumn = <T,>({
  nameOf,
  label = 'Remove',
  reason,
  onClick,
}: Removal<T>): Cell<T> =>
  changeColumn(nameOf, (row) => [{ label, danger: true, reason, onClick: () => onClick(row) }]);

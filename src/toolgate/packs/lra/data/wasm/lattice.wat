;; The evidence of this paper. `count`: how many points with whole coordinates lie within distance r of the origin.
;; Column by column: for each x the largest y with x*x + y*y <= r*r only ever falls, so r steps in x and at most
;; r steps in y suffice. Build it again with any WAT compiler: wat2wasm lattice.wat -o lattice.wasm
(module
  (func $count (export "count") (param $r i32) (result i32)
    (local $x i32) (local $y i32) (local $n i32)
    ;; Beyond 10000 the squares would leave 32 bits: answer -1 instead of a wrong number.
    (if (i32.gt_u (local.get $r) (i32.const 10000)) (then (return (i32.const -1))))
    (local.set $y (local.get $r))
    (loop $columns
      (block $fits
        (loop $down
          (br_if $fits
            (i32.le_s
              (i32.add
                (i32.mul (local.get $x) (local.get $x))
                (i32.mul (local.get $y) (local.get $y)))
              (i32.mul (local.get $r) (local.get $r))))
          (local.set $y (i32.sub (local.get $y) (i32.const 1)))
          (br $down)))
      ;; 2y + 1 points in this column, and as many in its mirror image unless x is 0.
      (local.set $n
        (i32.add (local.get $n)
          (i32.mul
            (i32.add (i32.mul (local.get $y) (i32.const 2)) (i32.const 1))
            (i32.add (i32.const 1) (i32.ne (local.get $x) (i32.const 0))))))
      (local.set $x (i32.add (local.get $x) (i32.const 1)))
      (br_if $columns (i32.le_s (local.get $x) (local.get $r))))
    (local.get $n))

  ;; How many whole radii from 1 to $limit miss the area by a quarter of Gauss's bound or more: |N - pi r^2| >= pi r / sqrt 2.
  (func (export "exceptions") (param $limit i32) (result i32)
    (local $r i32) (local $found i32) (local $x f64)
    (if (i32.gt_u (local.get $limit) (i32.const 10000)) (then (return (i32.const -1))))
    (block $done
      (loop $radii
        (local.set $r (i32.add (local.get $r) (i32.const 1)))
        (br_if $done (i32.gt_s (local.get $r) (local.get $limit)))
        (local.set $x (f64.convert_i32_s (local.get $r)))
        (local.set $found
          (i32.add (local.get $found)
            (f64.ge
              (f64.abs
                (f64.sub
                  (f64.convert_i32_s (call $count (local.get $r)))
                  (f64.mul (f64.const 3.141592653589793) (f64.mul (local.get $x) (local.get $x)))))
              (f64.mul (f64.const 2.221441469079183) (local.get $x)))))
        (br $radii)))
    (local.get $found))

  ;; The count minus the area of the disc.
  (func (export "difference") (param $r i32) (result f64)
    (f64.sub
      (f64.convert_i32_s (call $count (local.get $r)))
      (f64.mul
        (f64.const 3.141592653589793)
        (f64.mul (f64.convert_i32_s (local.get $r)) (f64.convert_i32_s (local.get $r))))))

  ;; Does the point lie in the disc? For the picture.
  (func (export "inside") (param $r i32) (param $x i32) (param $y i32) (result i32)
    (i32.le_s
      (i32.add (i32.mul (local.get $x) (local.get $x)) (i32.mul (local.get $y) (local.get $y)))
      (i32.mul (local.get $r) (local.get $r)))))
